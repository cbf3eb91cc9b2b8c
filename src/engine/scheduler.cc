#include "engine/scheduler.h"

#include <algorithm>

namespace octavo {

std::vector<ScheduledRows> ScheduleStep(std::span<const SequenceProgress> running,
                                        int64_t max_tokens) {
  std::vector<ScheduledRows> step;
  int64_t budget = max_tokens;
  const auto take = [&](bool decode) {
    for (size_t i = 0; i < running.size() && budget > 0; ++i) {
      const int64_t left = running[i].tokens - running[i].computed;
      if (left <= 0 || (left == 1) != decode) continue;
      const int64_t rows = std::min(left, budget);
      step.push_back({i, rows});
      budget -= rows;
    }
  };
  take(/*decode=*/true);
  take(/*decode=*/false);
  std::sort(step.begin(), step.end(),
            [](const ScheduledRows& a, const ScheduledRows& b) { return a.sequence < b.sequence; });
  return step;
}

}  // namespace octavo
