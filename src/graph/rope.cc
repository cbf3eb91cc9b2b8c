#include "graph/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

// Follows transformers' modeling_rope_utils.py (5.24) step by step, in the precision that torch has
// there: values per dimension in float32, scalars of the configuration in double, rounded to
// float32 where they meet a tensor. A position p turns by p * inverse: an error of one unit in the
// last place grows with p.
namespace octavo {
namespace {

constexpr std::array<std::pair<RopeType, const char*>, 6> kNames = {{
    {RopeType::kDefault, "default"},
    {RopeType::kLinear, "linear"},
    {RopeType::kDynamic, "dynamic"},
    {RopeType::kYarn, "yarn"},
    {RopeType::kLongrope, "longrope"},
    {RopeType::kLlama3, "llama3"},
}};

// base^(2i/dim) for each pair i, float32.
std::vector<float> Periods(float base, int64_t dim) {
  std::vector<float> periods(static_cast<size_t>(dim / 2));
  for (size_t i = 0; i < periods.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    periods[i] =
        static_cast<float>(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  return periods;
}

std::vector<float> Reciprocals(std::vector<float> values) {
  for (float& value : values) value = 1.0f / value;
  return values;
}

int64_t OriginalLength(const RopeParameters& p) {
  return p.original_max_position_embeddings > 0 ? p.original_max_position_embeddings
                                                : p.max_position_embeddings;
}

RopeFrequencies Linear(const RopeParameters& p) {
  RopeFrequencies result{Reciprocals(Periods(static_cast<float>(p.theta), p.rotary_dim))};
  for (float& inverse : result.inverse) inverse /= static_cast<float>(p.factor);
  return result;
}

// NTK-aware scaling: past the trained length the base grows with the sequence.
RopeFrequencies Dynamic(const RopeParameters& p, int64_t sequence_length) {
  float base = static_cast<float>(p.theta);
  if (sequence_length > p.max_position_embeddings) {
    const float stretch = static_cast<float>(p.factor) * static_cast<float>(sequence_length) /
                              static_cast<float>(p.max_position_embeddings) -
                          static_cast<float>(p.factor - 1.0);
    const double dim = static_cast<double>(p.rotary_dim);
    base *= static_cast<float>(std::pow(static_cast<double>(stretch), dim / (dim - 2.0)));
  }
  return {Reciprocals(Periods(base, p.rotary_dim))};
}

// YaRN (Peng et al. 2023, arXiv:2309.00071): dimensions that turn often keep their frequency, those
// that turn seldom are interpolated, with a linear ramp between.
RopeFrequencies Yarn(const RopeParameters& p) {
  const double dim = static_cast<double>(p.rotary_dim);
  const double length = static_cast<double>(OriginalLength(p));
  // The dimension that turns `rotations` times over the original length.
  const auto dimension_of = [&](double rotations) {
    return dim * std::log(length / (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(p.theta));
  };
  double low = dimension_of(p.beta_fast);
  double high = dimension_of(p.beta_slow);
  if (p.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;  // no division by zero in the ramp

  RopeFrequencies result{Periods(static_cast<float>(p.theta), p.rotary_dim)};
  const float factor = static_cast<float>(p.factor);
  for (size_t i = 0; i < result.inverse.size(); ++i) {
    const float period = result.inverse[i];
    const float ramp =
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float keep = 1.0f - std::clamp(ramp, 0.0f, 1.0f);
    result.inverse[i] = 1.0f / (factor * period) * (1.0f - keep) + 1.0f / period * keep;
  }

  const auto magnitude = [&](double scale) {
    return p.factor <= 1.0 ? 1.0 : 0.1 * scale * std::log(p.factor) + 1.0;
  };
  double attention = p.attention_factor;
  if (attention == 0.0 && p.mscale != 0.0 && p.mscale_all_dim != 0.0) {
    attention = magnitude(p.mscale) / magnitude(p.mscale_all_dim);
  } else if (attention == 0.0) {
    attention = magnitude(1.0);
  }
  result.attention_factor = static_cast<float>(attention);
  return result;
}

// LongRoPE (Ding et al. 2024, arXiv:2402.13753): a searched factor per dimension, one list up to
// the original length and one past it.
RopeFrequencies Longrope(const RopeParameters& p, int64_t sequence_length) {
  const int64_t length = OriginalLength(p);
  const std::vector<double>& factors = sequence_length > length ? p.long_factor : p.short_factor;
  RopeFrequencies result{Periods(static_cast<float>(p.theta), p.rotary_dim)};
  for (size_t i = 0; i < result.inverse.size(); ++i) {
    result.inverse[i] = 1.0f / (static_cast<float>(factors[i]) * result.inverse[i]);
  }
  double attention = p.attention_factor;
  if (attention == 0.0) {
    attention = p.factor <= 1.0
                    ? 1.0
                    : std::sqrt(1.0 + std::log(p.factor) / std::log(static_cast<double>(length)));
  }
  result.attention_factor = static_cast<float>(attention);
  return result;
}

// Llama 3.1: long wavelengths are divided by the factor, short ones kept, and those between are
// mixed.
RopeFrequencies Llama3(const RopeParameters& p) {
  const double length = static_cast<double>(OriginalLength(p));
  const float long_wave = static_cast<float>(length / p.low_freq_factor);
  const float short_wave = static_cast<float>(length / p.high_freq_factor);
  const float factor = static_cast<float>(p.factor);
  RopeFrequencies result{Reciprocals(Periods(static_cast<float>(p.theta), p.rotary_dim))};
  for (float& inverse : result.inverse) {
    const float wave = static_cast<float>(2.0 * std::numbers::pi) / inverse;
    if (wave > long_wave) {
      inverse /= factor;
    } else if (wave >= short_wave) {
      const float smooth =
          (static_cast<float>(length) / wave - static_cast<float>(p.low_freq_factor)) /
          static_cast<float>(p.high_freq_factor - p.low_freq_factor);
      inverse = (1.0f - smooth) * inverse / factor + smooth * inverse;
    }
  }
  return result;
}

}  // namespace

const char* Name(RopeType type) {
  for (const auto& [known, name] : kNames) {
    if (known == type) return name;
  }
  return "?";
}

std::optional<RopeType> RopeTypeFromName(std::string_view name) {
  for (const auto& [type, known] : kNames) {
    if (known == name) return type;
  }
  return std::nullopt;
}

std::string FindRopeProblem(const RopeParameters& p, int64_t head_dim) {
  if (p.rotary_dim < 2 || p.rotary_dim % 2 != 0 || p.rotary_dim > head_dim) {
    return fmt::format(
        "head_dim: rotary position embedding turns pairs of dimensions: expected an even number "
        "from "
        "2 to {}, found {}",
        head_dim, p.rotary_dim);
  }
  if (!(p.theta > 1.0)) {
    return fmt::format("rope_theta: expected a number above 1, found {}", p.theta);
  }
  if (p.type == RopeType::kDynamic && p.rotary_dim == 2) {
    return "head_dim: dynamic rope needs at least 4 dimensions, found 2";
  }
  if (p.type == RopeType::kLongrope) {
    const size_t pairs = static_cast<size_t>(p.rotary_dim / 2);
    for (const auto& [field, found] : {std::pair{"short_factor", p.short_factor.size()},
                                       std::pair{"long_factor", p.long_factor.size()}}) {
      if (found == pairs) continue;
      return fmt::format("{}: expected {} numbers, one per two rotary dimensions, found {}", field,
                         pairs, found);
    }
  }
  // A frequency that is not finite would turn every logit into NaN.
  for (const int64_t length : {int64_t{1}, 2 * std::max<int64_t>(p.max_position_embeddings, 1)}) {
    const RopeFrequencies frequencies = ComputeRopeFrequencies(p, length);
    bool finite = std::isfinite(frequencies.attention_factor);
    for (const float inverse : frequencies.inverse) finite = finite && std::isfinite(inverse);
    if (!finite) {
      return fmt::format("rope_type {} with these parameters gives frequencies that are not finite",
                         Name(p.type));
    }
  }
  return "";
}

RopeFrequencies ComputeRopeFrequencies(const RopeParameters& p, int64_t sequence_length) {
  switch (p.type) {
    case RopeType::kDefault:
      break;
    case RopeType::kLinear:
      return Linear(p);
    case RopeType::kDynamic:
      return Dynamic(p, sequence_length);
    case RopeType::kYarn:
      return Yarn(p);
    case RopeType::kLongrope:
      return Longrope(p, sequence_length);
    case RopeType::kLlama3:
      return Llama3(p);
  }
  return {Reciprocals(Periods(static_cast<float>(p.theta), p.rotary_dim))};
}

bool DependsOnLength(const RopeParameters& p) {
  return p.type == RopeType::kDynamic || p.type == RopeType::kLongrope;
}

}  // namespace octavo
