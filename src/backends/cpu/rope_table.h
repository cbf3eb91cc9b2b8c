// Cosines and sines of the rows of a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/op.h"

namespace octavo::cpu {

class RopeTable {
 public:
  explicit RopeTable(const RopeParameters& parameters);

  int64_t rotary_dim() const { return parameters_.rotary_dim; }

  // Begins a batch of `rows` rows.
  void Begin(int64_t rows);
  // The next `rows` rows stand at positions first, first + 1, ...; rope_length as in SequenceRows.
  void AddRows(int64_t rows, int64_t first, int64_t rope_length);

  // [rotary_dim / 2] each, of a row of the batch.
  const float* cosines(int64_t row) const {
    return values_.data() + offsets_[static_cast<size_t>(row)];
  }
  const float* sines(int64_t row) const { return cosines(row) + parameters_.rotary_dim / 2; }

 private:
  void Append(const std::vector<float>& inverse, float attention_factor, int64_t position);

  RopeParameters parameters_;
  bool depends_on_length_;
  // [entries][cosines, sines]. Entry p is position p where the frequencies are the same for all
  // sequences, and stays for later batches; else entries are the rows of the batch.
  std::vector<float> values_;
  std::vector<float> inverse_;  // of frequencies that do not depend on the length
  float attention_factor_ = 1.0f;
  std::vector<int64_t> offsets_;  // by row, into values_
};

}  // namespace octavo::cpu
