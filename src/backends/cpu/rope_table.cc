#include "backends/cpu/rope_table.h"

#include <cmath>

#include "graph/rope.h"

namespace octavo::cpu {

RopeTable::RopeTable(const RopeParameters& parameters)
    : parameters_(parameters), depends_on_length_(DependsOnLength(parameters)) {
  if (depends_on_length_) return;
  const RopeFrequencies frequencies = ComputeRopeFrequencies(parameters_, 0);
  inverse_ = frequencies.inverse;
  attention_factor_ = frequencies.attention_factor;
}

// As transformers does: the angle is a float32 product, and so are cosine and sine times the
// factor.
void RopeTable::Append(const std::vector<float>& inverse, float attention_factor,
                       int64_t position) {
  const auto angle = [&](float frequency) {
    return static_cast<double>(static_cast<float>(position) * frequency);
  };
  for (const float frequency : inverse) {
    values_.push_back(static_cast<float>(std::cos(angle(frequency))) * attention_factor);
  }
  for (const float frequency : inverse) {
    values_.push_back(static_cast<float>(std::sin(angle(frequency))) * attention_factor);
  }
}

void RopeTable::Begin(int64_t rows) {
  offsets_.clear();
  offsets_.reserve(static_cast<size_t>(rows));
  if (depends_on_length_) values_.clear();
}

void RopeTable::AddRows(int64_t rows, int64_t first, int64_t rope_length) {
  if (depends_on_length_) {
    const RopeFrequencies frequencies = ComputeRopeFrequencies(parameters_, rope_length);
    for (int64_t i = 0; i < rows; ++i) {
      offsets_.push_back(static_cast<int64_t>(values_.size()));
      Append(frequencies.inverse, frequencies.attention_factor, first + i);
    }
    return;
  }
  const int64_t entry = 2 * static_cast<int64_t>(inverse_.size());
  for (int64_t known = static_cast<int64_t>(values_.size()) / entry; known < first + rows;
       ++known) {
    Append(inverse_, attention_factor_, known);
  }
  for (int64_t i = 0; i < rows; ++i) offsets_.push_back((first + i) * entry);
}

}  // namespace octavo::cpu
