// Loads a checkpoint in 8 bits and completes a prompt: generate MODEL_DIR "Once upon a time"
#include <octavo/llm.h>

#include <cstdio>

int main(int argc, char** argv) try {
  if (argc != 3) return std::fprintf(stderr, "usage: generate MODEL PROMPT\n"), 2;
  octavo::LLM llm({.model = argv[1], .quantization = "int8"});
  std::puts(llm.Generate(argv[2], {.max_tokens = 64, .temperature = 0}).text.c_str());
} catch (const octavo::Error& error) {
  return std::fprintf(stderr, "generate: %s\n", error.what()), 1;
}
