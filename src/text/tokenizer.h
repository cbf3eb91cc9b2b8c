// Token ids from text and back, as the Hugging Face `tokenizers` library does it from a
// tokenizer.json.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct textkit_tokenizer;

namespace octavo {

struct SpecialToken {
  int64_t id = 0;
  std::string text;
};

// Const methods may be called from any number of threads. Token caches are per thread, so
// long-lived threads encode fastest.
class Tokenizer {
 public:
  // Throws kNotFound when there is no such file, kDataLoss when it is not a tokenizer.json.
  static Tokenizer FromFile(const std::string& path);
  // `name` stands for the source in messages.
  static Tokenizer FromJson(std::string_view json, const std::string& name);

  // Special tokens that are written out in `text` become their ids, as in transformers.
  // `add_special_tokens` adds what the post-processor adds (usually the beginning-of-text token):
  // true for plain text, false for text from a chat template, which writes them itself. Throws
  // kInvalidArgument when `text` is not UTF-8.
  std::vector<int64_t> Encode(std::string_view text, bool add_special_tokens = true) const;

  // Ids without a token (a vocabulary is often padded beyond the tokenizer's) are left out.
  std::string Decode(std::span<const int64_t> ids, bool skip_special_tokens = true) const;

  int64_t vocab_size() const { return vocab_size_; }  // number of tokens, added ones included
  int64_t id_limit() const { return id_limit_; }      // one past the largest id
  std::optional<int64_t> TokenToId(std::string_view token) const;
  std::optional<std::string> IdToToken(int64_t id) const;  // as the vocabulary spells it
  const std::vector<SpecialToken>& special_tokens() const { return special_tokens_; }  // by id

  const textkit_tokenizer* handle() const { return handle_.get(); }

 private:
  struct Free {
    void operator()(textkit_tokenizer* tokenizer) const;
  };

  Tokenizer() = default;

  std::unique_ptr<textkit_tokenizer, Free> handle_;
  int64_t vocab_size_ = 0;
  int64_t id_limit_ = 0;
  std::vector<SpecialToken> special_tokens_;
};

}  // namespace octavo
