#include "text/decode_stream.h"

#include <vector>

#include "text/textkit_call.h"
#include "text/tokenizer.h"

namespace octavo {

void DecodeStream::Free::operator()(textkit_decode_stream* stream) const {
  textkit_decode_stream_free(stream);
}

DecodeStream::DecodeStream(const Tokenizer& tokenizer, bool skip_special_tokens,
                           std::span<const int64_t> prompt) {
  const std::vector<uint32_t> ids = ToTextkitIds(prompt);
  textkit_decode_stream* handle = nullptr;
  CheckTextkit(textkit_decode_stream_new(tokenizer.handle(), skip_special_tokens, ids.data(),
                                         ids.size(), &handle),
               "starting a decode stream");
  handle_.reset(handle);
}

std::string DecodeStream::Push(int64_t id) {
  textkit_bytes text{};
  CheckTextkit(textkit_decode_stream_push(handle_.get(), ToTextkitId(id), &text),
               "decoding a token id");
  return TakeString(text);
}

std::string DecodeStream::Flush() {
  textkit_bytes text{};
  CheckTextkit(textkit_decode_stream_flush(handle_.get(), &text), "ending a decode stream");
  return TakeString(text);
}

}  // namespace octavo
