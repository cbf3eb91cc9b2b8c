// Text from the token ids of one sequence as they are generated, in whole characters.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

struct textkit_decode_stream;

namespace octavo {

class Tokenizer;

// The pieces of Push() and Flush() together are what Tokenizer::Decode gives for all ids. One
// exception: vocabularies with byte tokens (SentencePiece) decode a whole run of byte tokens to
// U+FFFD when one of them is bad; characters given out before the bad byte came stay what they
// were. For one thread at a time. Keeps what it needs of the tokenizer alive. Move-only.
class DecodeStream {
 public:
  // `prompt`, the ids that the sequence begins with, is context: its text is not given out, but the
  // first piece begins with a space where it continues the prompt's text.
  DecodeStream(const Tokenizer& tokenizer, bool skip_special_tokens,
               std::span<const int64_t> prompt = {});

  // The text that became final with this id; empty while a character is incomplete. Text is held
  // back for at most 8 ids.
  std::string Push(int64_t id);

  // What is still held back: U+FFFD for an incomplete character.
  std::string Flush();

 private:
  struct Free {
    void operator()(textkit_decode_stream* stream) const;
  };

  std::unique_ptr<textkit_decode_stream, Free> handle_;
};

}  // namespace octavo
