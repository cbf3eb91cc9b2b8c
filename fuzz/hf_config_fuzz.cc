// Any text either is a configuration whose fields can be asked for, or is refused with an Error.
#include <octavo/error.h>

#include <cstdint>
#include <string_view>

#include "checkpoint/hf_config.h"

namespace {

template <typename Read>
void Try(Read&& read) {
  try {
    read();
  } catch (const octavo::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Try([&] {
    const octavo::HfConfig config = octavo::HfConfig::FromText(text, "fuzz");
    for (const char* key : {"a", "rope_scaling", "eos_token_id", "weight_map"}) {
      Try([&] { config.Int(key); });
      Try([&] { config.Float(key, 1.0); });
      Try([&] { config.Bool(key, false); });
      Try([&] { config.String(key); });
      Try([&] { config.IntList(key); });
      Try([&] { config.FloatList(key); });
      Try([&] { config.StringList(key); });
      Try([&] { config.StringMap(key); });
      Try([&] { config.Size(key); });
      Try([&] {
        if (const auto object = config.Object(key)) object->Int(key);
      });
    }
  });
  return 0;
}
