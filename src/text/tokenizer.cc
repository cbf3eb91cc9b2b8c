#include "text/tokenizer.h"

#include <fmt/format.h>

#include "base/file.h"
#include "text/textkit_call.h"

namespace octavo {

void Tokenizer::Free::operator()(textkit_tokenizer* tokenizer) const {
  textkit_tokenizer_free(tokenizer);
}

Tokenizer Tokenizer::FromFile(const std::string& path) {
  return FromJson(ReadTextFile(path), path);
}

Tokenizer Tokenizer::FromJson(std::string_view json, const std::string& name) {
  Tokenizer tokenizer;
  textkit_tokenizer* handle = nullptr;
  CheckTextkit(textkit_tokenizer_new(Bytes(json), json.size(), &handle), name);
  tokenizer.handle_.reset(handle);

  size_t vocab_size = 0;
  uint32_t id_limit = 0;
  CheckTextkit(textkit_tokenizer_vocab_size(handle, &vocab_size, &id_limit), name);
  tokenizer.vocab_size_ = static_cast<int64_t>(vocab_size);
  tokenizer.id_limit_ = id_limit;

  size_t count = 0;
  CheckTextkit(textkit_tokenizer_special_count(handle, &count), name);
  for (size_t index = 0; index < count; ++index) {
    uint32_t id = 0;
    textkit_bytes text{};
    CheckTextkit(textkit_tokenizer_special_at(handle, index, &id, &text), name);
    tokenizer.special_tokens_.push_back({id, TakeString(text)});
  }
  return tokenizer;
}

std::vector<int64_t> Tokenizer::Encode(std::string_view text, bool add_special_tokens) const {
  textkit_ids ids{};
  CheckTextkit(
      textkit_tokenizer_encode(handle_.get(), Bytes(text), text.size(), add_special_tokens, &ids),
      "encoding text");
  return TakeIds(ids);
}

std::string Tokenizer::Decode(std::span<const int64_t> ids, bool skip_special_tokens) const {
  const std::vector<uint32_t> converted = ToTextkitIds(ids);
  textkit_bytes text{};
  CheckTextkit(textkit_tokenizer_decode(handle_.get(), converted.data(), converted.size(),
                                        skip_special_tokens, &text),
               "decoding token ids");
  return TakeString(text);
}

std::optional<int64_t> Tokenizer::TokenToId(std::string_view token) const {
  int64_t id = -1;
  CheckTextkit(textkit_tokenizer_token_to_id(handle_.get(), Bytes(token), token.size(), &id),
               "looking up a token");
  return id < 0 ? std::nullopt : std::optional<int64_t>(id);
}

std::optional<std::string> Tokenizer::IdToToken(int64_t id) const {
  if (id < 0 || id >= id_limit_) return std::nullopt;
  textkit_bytes token{};
  if (textkit_tokenizer_id_to_token(handle_.get(), ToTextkitId(id), &token) != TEXTKIT_OK) {
    return std::nullopt;  // a hole in the vocabulary
  }
  return TakeString(token);
}

}  // namespace octavo
