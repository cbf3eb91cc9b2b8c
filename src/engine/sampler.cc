#include "engine/sampler.h"

#include <fmt/format.h>
#include <octavo/error.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace octavo {
namespace {

[[noreturn]] void ThrowOutOfRange(const char* name, double value, const char* expected) {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} is {}, expected {}", name, value, expected));
}

// One step of SplitMix64 (Steele, Lea, Flood 2014).
uint64_t SplitMix64(uint64_t& state) {
  state += 0x9e3779b97f4a7c15u;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

uint64_t RandomSeed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

struct Candidate {
  float logit;
  int32_t id;
};

// More likely first; equal logits by id, so that the order is the same everywhere.
bool MoreLikely(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// Largest logit, its first index; throws when a logit is NaN or the largest is not finite.
int32_t ArgMax(std::span<const float> logits) {
  size_t best = 0;
  bool nan = false;
  for (size_t i = 0; i < logits.size(); ++i) {
    nan = nan || std::isnan(logits[i]);
    if (logits[i] > logits[best]) best = i;
  }
  if (nan || logits.empty() || !std::isfinite(logits[best])) {
    throw Error(ErrorCode::kDataLoss,
                "the model's logits are not finite: a weight is NaN or infinite, or an activation "
                "overflowed");
  }
  return static_cast<int32_t>(best);
}

// log(sum(exp(logits)))
float LogSumExp(std::span<const float> logits, float largest) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - largest));
  return largest + static_cast<float>(std::log(sum));
}

// The `count` most likely of the logits, in order.
std::vector<Candidate> MostLikely(std::span<const float> logits, int64_t count) {
  std::vector<Candidate> candidates(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    candidates[i] = {logits[i], static_cast<int32_t>(i)};
  }
  const auto keep =
      static_cast<size_t>(std::min<int64_t>(count, static_cast<int64_t>(logits.size())));
  const auto middle = candidates.begin() + static_cast<std::ptrdiff_t>(keep);
  if (keep < candidates.size()) {
    std::nth_element(candidates.begin(), middle, candidates.end(), MoreLikely);
    candidates.resize(keep);
  }
  std::sort(candidates.begin(), candidates.end(), MoreLikely);
  return candidates;
}

}  // namespace

void ValidateSamplingParams(const SamplingParams& p) {
  if (p.max_tokens < 1)
    ThrowOutOfRange("max_tokens", static_cast<double>(p.max_tokens), "at least 1");
  if (!(p.temperature >= 0.0f) || !std::isfinite(p.temperature)) {
    ThrowOutOfRange("temperature", p.temperature, "a finite number of at least 0");
  }
  if (p.top_k < -1)
    ThrowOutOfRange("top_k", static_cast<double>(p.top_k), "-1 or 0 (all), or more");
  if (!(p.top_p > 0.0f && p.top_p <= 1.0f)) ThrowOutOfRange("top_p", p.top_p, "within (0, 1]");
  if (!(p.min_p >= 0.0f && p.min_p <= 1.0f)) ThrowOutOfRange("min_p", p.min_p, "within [0, 1]");
  if (!(p.repetition_penalty > 0.0f) || !std::isfinite(p.repetition_penalty)) {
    ThrowOutOfRange("repetition_penalty", p.repetition_penalty, "a finite number above 0");
  }
  if (!(std::abs(p.presence_penalty) <= 2.0f)) {
    ThrowOutOfRange("presence_penalty", p.presence_penalty, "within [-2, 2]");
  }
  if (!(std::abs(p.frequency_penalty) <= 2.0f)) {
    ThrowOutOfRange("frequency_penalty", p.frequency_penalty, "within [-2, 2]");
  }
  if (p.logprobs && (*p.logprobs < 0 || *p.logprobs > 20)) {
    ThrowOutOfRange("logprobs", static_cast<double>(*p.logprobs), "within 0..20");
  }
  for (const std::string& stop : p.stop) {
    if (stop.empty()) throw Error(ErrorCode::kInvalidArgument, "stop holds an empty string");
  }
}

Sampler::Sampler(const SamplingParams& params, std::span<const int32_t> prompt, int64_t vocab_limit)
    : params_(params),
      vocab_limit_(vocab_limit),
      state_(params.seed ? *params.seed : RandomSeed()) {
  if (params_.repetition_penalty != 1.0f) {
    prompt_tokens_.assign(prompt.begin(), prompt.end());
    std::sort(prompt_tokens_.begin(), prompt_tokens_.end());
    prompt_tokens_.erase(std::unique(prompt_tokens_.begin(), prompt_tokens_.end()),
                         prompt_tokens_.end());
  }
}

double Sampler::NextUniform() { return static_cast<double>(SplitMix64(state_) >> 11) * 0x1p-53; }

void Sampler::ApplyPenalties(std::vector<float>& logits) const {
  const auto limit = static_cast<int32_t>(logits.size());
  if (params_.repetition_penalty != 1.0f) {
    const auto repeat = [&](int32_t id) {
      if (id >= limit) return;
      float& logit = logits[static_cast<size_t>(id)];
      const float penalty = params_.repetition_penalty;
      // An extreme penalty may leave the range of float; what follows needs finite numbers.
      constexpr float kLimit = std::numeric_limits<float>::max();
      logit = std::clamp(logit > 0 ? logit / penalty : logit * penalty, -kLimit, kLimit);
    };
    for (const int32_t id : prompt_tokens_) repeat(id);
    for (const auto& [id, count] : output_counts_) {
      if (!std::binary_search(prompt_tokens_.begin(), prompt_tokens_.end(), id)) repeat(id);
    }
  }
  for (const auto& [id, count] : output_counts_) {
    if (id >= limit) continue;
    logits[static_cast<size_t>(id)] -=
        params_.presence_penalty + params_.frequency_penalty * static_cast<float>(count);
  }
}

std::vector<Sampler::Weighted> Sampler::Candidates(std::span<const float> logits) const {
  const auto vocab = static_cast<int64_t>(logits.size());
  const float largest = *std::max_element(logits.begin(), logits.end());
  // Relative to the most likely token, whose weight is 1: min-p compares with just that.
  const auto weight = [&](float logit) {
    const double w = std::exp(static_cast<double>(logit - largest) / params_.temperature);
    return w >= params_.min_p ? w : 0.0;
  };
  const bool has_top_k = params_.top_k > 0 && params_.top_k < vocab;
  std::vector<Weighted> kept;
  double total = 0;
  if (!has_top_k) {
    kept.reserve(logits.size());
    for (size_t i = 0; i < logits.size(); ++i) {
      kept.push_back({static_cast<int32_t>(i), weight(logits[i])});
      total += kept.back().weight;
    }
    if (params_.top_p >= 1.0f) return kept;
  }
  // top-p needs an order, but rarely of more than the first thousand; of all when it does.
  constexpr int64_t kFirstCandidates = 1024;
  for (int64_t count = has_top_k ? params_.top_k : kFirstCandidates;; count = vocab) {
    kept.clear();
    for (const Candidate& candidate : MostLikely(logits, count)) {
      kept.push_back({candidate.id, weight(candidate.logit)});
      if (has_top_k) total += kept.back().weight;
    }
    double mass = 0;
    size_t size = 0;
    while (size < kept.size() && (size == 0 || mass < params_.top_p * total)) {
      mass += kept[size++].weight;
    }
    if (has_top_k || count >= vocab || mass >= params_.top_p * total) {
      kept.resize(size);
      return kept;
    }
  }
}

int32_t Sampler::Draw(std::span<const float> logits) {
  const std::vector<Weighted> candidates = Candidates(logits);
  double mass = 0;
  for (const Weighted& candidate : candidates) mass += candidate.weight;
  double point = NextUniform() * mass;
  int32_t last = candidates.front().id;
  for (const Weighted& candidate : candidates) {
    if (candidate.weight == 0) continue;
    last = candidate.id;
    point -= candidate.weight;
    if (point < 0) break;
  }
  return last;
}

SampledToken Sampler::Sample(std::span<const float> logits) {
  logits = logits.first(
      static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(logits.size()), vocab_limit_)));
  SampledToken sampled;
  const int32_t best = ArgMax(logits);
  const bool penalties = params_.repetition_penalty != 1.0f || params_.presence_penalty != 0.0f ||
                         params_.frequency_penalty != 0.0f;
  if (!penalties && params_.temperature == 0.0f) {
    sampled.id = best;
  } else {
    std::vector<float> adjusted(logits.begin(), logits.end());
    if (penalties) ApplyPenalties(adjusted);
    sampled.id = params_.temperature == 0.0f ? ArgMax(adjusted) : Draw(adjusted);
  }
  if (params_.logprobs) {
    const float normalizer = LogSumExp(logits, logits[static_cast<size_t>(best)]);
    sampled.logprobs.emplace_back(sampled.id, logits[static_cast<size_t>(sampled.id)] - normalizer);
    for (const Candidate& candidate : MostLikely(logits, *params_.logprobs)) {
      sampled.logprobs.emplace_back(candidate.id, candidate.logit - normalizer);
    }
  }
  ++output_counts_[sampled.id];
  return sampled;
}

}  // namespace octavo
