#include <fmt/format.h>
#include <octavo/llm.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/file.h"
#include "checkpoint/generation_config.h"
#include "engine/engine.h"
#include "text/chat_template.h"

namespace octavo {
namespace {

// Without --max-model-len a model of a very long context does not claim memory for all of it.
constexpr int64_t kDefaultMaxModelLen = 8192;

LoadProgressFunction ProgressOf(const LLMOptions& options) {
  if (!options.on_load_progress) return {};
  return [callback = options.on_load_progress](const LoadProgress& progress) {
    callback({progress.bytes_read, progress.bytes_total, progress.seconds});
  };
}

ModelOptions ModelOptionsOf(const LLMOptions& options) {
  return {.model = options.model,
          .revision = options.revision,
          .load = {.quantization = options.quantization,
                   .quantize_lm_head = options.quantize_lm_head,
                   .skip_modules = options.skip_modules},
          .backend = options.backend,
          .dtype = options.dtype,
          .threads = options.threads};
}

EngineOptions EngineOptionsOf(const LLMOptions& options, const Graph& graph) {
  const int64_t context = graph.context_length();
  int64_t length = options.max_model_len;
  if (length == 0) length = std::min(context, kDefaultMaxModelLen);
  if (length < 2 || length > context) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("max_model_len is {}, expected 2 to the model's context of {} tokens",
                            length, context));
  }
  for (const auto& [name, value] : {std::pair{"max_num_seqs", options.max_num_seqs},
                                    {"max_num_batched_tokens", options.max_num_batched_tokens}}) {
    if (value < 1) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} is {}, expected at least 1", name, value));
    }
  }
  return {.max_model_len = length,
          .max_num_seqs = options.max_num_seqs,
          .max_num_batched_tokens = options.max_num_batched_tokens};
}

}  // namespace

class LLM::Impl {
 public:
  // What can be wrong is found before the weights are read: a bad tokenizer or option should not
  // cost a load.
  explicit Impl(const LLMOptions& options)
      : tokenizer_(Tokenizer::FromFile(ResolveModelDirectory(options.model, options.revision) +
                                       "/tokenizer.json")),
        model_(ModelOptionsOf(options), ProgressOf(options),
               [&](const ModelPlan& plan) {
                 const std::string& directory = plan.checkpoint.directory();
                 chat_template_ = ChatTemplate::FromDirectory(directory);
                 generation_ = GenerationConfig::FromDirectory(directory, plan.checkpoint.config());
                 engine_options_ = EngineOptionsOf(options, plan.graph);
               }),
        engine_(model_, tokenizer_, generation_.eos_token_ids, engine_options_) {}

  Request MakeRequest(std::string_view text, bool add_special_tokens, const SamplingParams& params,
                      const TextCallback& on_text) const {
    const std::vector<int64_t> ids = tokenizer_.Encode(text, add_special_tokens);
    return {.prompt = std::vector<int32_t>(ids.begin(), ids.end()),
            .params = params,
            .on_text = on_text};
  }

  std::string RenderChat(std::span<const ChatMessage> messages) const {
    if (!chat_template_) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: the model has no chat template (chat_template in "
                              "tokenizer_config.json, or chat_template.jinja)",
                              model_.directory()));
    }
    return chat_template_->Render(messages);
  }

  std::vector<Completion> Run(std::vector<Request> requests) {
    std::vector<Completion> completions(requests.size());
    try {
      std::vector<int64_t> numbers;
      numbers.reserve(requests.size());
      for (Request& request : requests) numbers.push_back(engine_.Add(std::move(request)));
      while (engine_.HasWork()) {
        for (Engine::Finished& finished : engine_.Step()) {
          const auto place = std::find(numbers.begin(), numbers.end(), finished.request);
          completions[static_cast<size_t>(place - numbers.begin())] =
              std::move(finished.completion);
        }
      }
    } catch (...) {
      engine_.Clear();
      throw;
    }
    return completions;
  }

  Completion RunOne(Request request) {
    std::vector<Request> requests;
    requests.push_back(std::move(request));
    return std::move(Run(std::move(requests)).front());
  }

  const GenerationConfig& generation() const { return generation_; }
  const EngineOptions& engine_options() const { return engine_options_; }
  bool has_chat_template() const { return chat_template_.has_value(); }
  const LoadedModel& model() const { return model_; }

 private:
  Tokenizer tokenizer_;
  std::optional<ChatTemplate> chat_template_;
  GenerationConfig generation_;
  EngineOptions engine_options_;
  LoadedModel model_;  // filling the three above on its way
  Engine engine_;
};

LLM::LLM(const LLMOptions& options) : impl_(std::make_unique<Impl>(options)) {}
LLM::~LLM() = default;
LLM::LLM(LLM&&) noexcept = default;
LLM& LLM::operator=(LLM&&) noexcept = default;

Completion LLM::Generate(std::string_view prompt, const SamplingParams& params,
                         const TextCallback& on_text) {
  return impl_->RunOne(impl_->MakeRequest(prompt, /*add_special_tokens=*/true, params, on_text));
}

std::vector<Completion> LLM::Generate(std::span<const std::string> prompts,
                                      const SamplingParams& params) {
  std::vector<Request> requests;
  for (const std::string& prompt : prompts) {
    requests.push_back(impl_->MakeRequest(prompt, /*add_special_tokens=*/true, params, {}));
  }
  return impl_->Run(std::move(requests));
}

Completion LLM::Chat(std::span<const ChatMessage> messages, const SamplingParams& params,
                     const TextCallback& on_text) {
  // The template writes the special tokens itself.
  return impl_->RunOne(impl_->MakeRequest(impl_->RenderChat(messages), /*add_special_tokens=*/false,
                                          params, on_text));
}

SamplingParams LLM::default_sampling_params(SamplingParams base) const {
  const GenerationConfig& file = impl_->generation();
  if (file.temperature) base.temperature = static_cast<float>(*file.temperature);
  if (file.top_k) base.top_k = *file.top_k;
  if (file.top_p) base.top_p = static_cast<float>(*file.top_p);
  if (file.min_p) base.min_p = static_cast<float>(*file.min_p);
  if (file.repetition_penalty) {
    base.repetition_penalty = static_cast<float>(*file.repetition_penalty);
  }
  if (file.do_sample && !*file.do_sample) base.temperature = 0.0f;
  return base;
}

bool LLM::has_chat_template() const { return impl_->has_chat_template(); }
int64_t LLM::max_model_len() const { return impl_->engine_options().max_model_len; }

}  // namespace octavo
