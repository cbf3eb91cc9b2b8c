#include "models/rope_config.h"

#include <fmt/format.h>
#include <octavo/error.h>

#include <cmath>
#include <optional>
#include <string>

#include "graph/rope.h"

namespace octavo {
namespace {

double Positive(const HfConfig& config, std::string_view field, double value) {
  if (!std::isfinite(value) || value <= 0.0) {
    config.Refuse(field, fmt::format("expected a number above 0, found {}", value));
  }
  return value;
}

double PositiveFloat(const HfConfig& config, std::string_view field) {
  return Positive(config, field, config.Float(field));
}

double PositiveFloat(const HfConfig& config, std::string_view field, double fallback) {
  return Positive(config, field, config.Float(field, fallback));
}

RopeType ReadType(const HfConfig& config, const HfConfig& settings, const char* section) {
  const std::string name = settings.String("rope_type", settings.String("type", "default"));
  const std::optional<RopeType> type = RopeTypeFromName(name);
  if (type) return *type;
  throw Error(
      ErrorCode::kUnimplemented,
      fmt::format("{}: {}.rope_type: \"{}\" is not supported; supported are default, linear, "
                  "dynamic, yarn, longrope and llama3",
                  config.path(), section, name));
}

// The settings can be given once per layer type; models whose layers differ in them read them
// themselves.
void CheckNotPerLayerType(const HfConfig& config, const HfConfig& settings, const char* section) {
  for (const char* layer_type : {"full_attention", "sliding_attention"}) {
    if (!settings.Has(layer_type)) continue;
    throw Error(ErrorCode::kUnimplemented,
                fmt::format("{}: {}.{}: rotary settings per layer type are not supported for this "
                            "architecture",
                            config.path(), section, layer_type));
  }
}

void CheckWholeHeadRotates(const HfConfig& config, const HfConfig& settings) {
  const double share =
      settings.Float("partial_rotary_factor", config.Float("partial_rotary_factor", 1.0));
  if (share == 1.0) return;
  config.Refuse("partial_rotary_factor",
                fmt::format("this architecture rotates whole heads: expected 1, found {}", share));
}

// The length that the frequencies were trained for.
int64_t ReadOriginalLength(const HfConfig& config, const HfConfig& settings, int64_t fallback) {
  constexpr const char* kField = "original_max_position_embeddings";
  if (config.Has(kField)) return config.Size(kField);
  return settings.Size(kField, fallback, int64_t{1} << 31);
}

double ImpliedFactor(const RopeParameters& rope) {
  return static_cast<double>(rope.max_position_embeddings) /
         static_cast<double>(rope.original_max_position_embeddings);
}

}  // namespace

RopeParameters ReadRopeParameters(const HfConfig& config, int64_t head_dim,
                                  int64_t max_position_embeddings) {
  // Where both are given, rope_scaling has the last word, as in transformers.
  const char* section = config.Has("rope_scaling") ? "rope_scaling" : "rope_parameters";
  const HfConfig settings =
      config.Object(section).value_or(HfConfig::FromText("{}", config.path()));
  CheckNotPerLayerType(config, settings, section);
  CheckWholeHeadRotates(config, settings);

  RopeParameters rope;
  rope.type = ReadType(config, settings, section);
  rope.theta =
      PositiveFloat(settings, "rope_theta", PositiveFloat(config, "rope_theta", rope.theta));
  rope.rotary_dim = head_dim;
  if (rope.type != RopeType::kDefault && rope.type != RopeType::kLinear) {
    rope.max_position_embeddings = max_position_embeddings;
  }
  if (rope.type == RopeType::kYarn || rope.type == RopeType::kLongrope ||
      rope.type == RopeType::kLlama3) {
    rope.original_max_position_embeddings =
        ReadOriginalLength(config, settings, max_position_embeddings);
  }
  switch (rope.type) {
    case RopeType::kDefault:
      break;
    case RopeType::kLinear:
    case RopeType::kDynamic:
      rope.factor = PositiveFloat(settings, "factor");
      break;
    case RopeType::kLlama3:
      rope.factor = PositiveFloat(settings, "factor");
      rope.low_freq_factor = PositiveFloat(settings, "low_freq_factor");
      rope.high_freq_factor = PositiveFloat(settings, "high_freq_factor");
      if (rope.high_freq_factor <= rope.low_freq_factor) {
        settings.Refuse("high_freq_factor",
                        fmt::format("expected more than low_freq_factor {}, found {}",
                                    rope.low_freq_factor, rope.high_freq_factor));
      }
      break;
    case RopeType::kYarn:
      rope.factor = PositiveFloat(settings, "factor", ImpliedFactor(rope));
      rope.beta_fast = PositiveFloat(settings, "beta_fast", rope.beta_fast);
      rope.beta_slow = PositiveFloat(settings, "beta_slow", rope.beta_slow);
      rope.mscale = settings.Float("mscale", 0.0);
      rope.mscale_all_dim = settings.Float("mscale_all_dim", 0.0);
      rope.attention_factor = settings.Float("attention_factor", 0.0);
      rope.truncate = settings.Bool("truncate", true);
      break;
    case RopeType::kLongrope:
      rope.factor = PositiveFloat(settings, "factor", ImpliedFactor(rope));
      rope.attention_factor = settings.Float("attention_factor", 0.0);
      rope.short_factor = settings.FloatList("short_factor");
      rope.long_factor = settings.FloatList("long_factor");
      break;
  }
  const std::string problem = FindRopeProblem(rope, head_dim);
  if (!problem.empty()) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", config.path(), problem));
  }
  return rope;
}

}  // namespace octavo
