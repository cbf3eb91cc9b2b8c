#include "backends/cpu/weight_store.h"

#include <fmt/format.h>
#include <octavo/error.h>

#include <cstring>

#include "kernels/packed_weight.h"

namespace octavo::cpu {
namespace {

int64_t Padded(int64_t n) { return (n + kPackedRows - 1) / kPackedRows * kPackedRows; }

// Sums of the rows of s8 [rows, k], which the integer kernels need to take out the offset of their
// unsigned activations.
void SumRows(const int8_t* values, int64_t rows, int64_t k, int32_t* sums) {
  for (int64_t row = 0; row < rows; ++row) {
    int32_t sum = 0;
    for (int64_t i = 0; i < k; ++i) sum += values[row * k + i];
    sums[row] = sum;
  }
}

bool HasRowSums(const WeightFormat& format) { return format == WeightFormat::S8Channel(); }

void CheckFormat(const std::string& name, const WeightFormat& format) {
  try {
    LinearFormatOf(format);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: the cpu backend: {}", name, error.what()));
  }
}

}  // namespace

WeightStore::WeightStore(const Graph& graph, const KernelTable& kernels)
    : weights_(graph.weights().size()), kernels_(kernels) {
  for (size_t i = 0; i < weights_.size(); ++i) {
    const WeightDecl& decl = graph.weights()[i];
    Weight& weight = weights_[i];
    weight.name = decl.name;
    weight.rows = decl.out_features();
    weight.columns = decl.in_features();
    weight.role = decl.role;
    weight.tied_head = decl.tied_head;
  }
}

void WeightStore::Begin(WeightId id, const WeightFormat& format) {
  Weight& weight = weights_.at(static_cast<size_t>(id));
  const bool plain = format == WeightFormat::Plain(format.element) && IsFloat(format.element);
  const bool vector = weight.role == WeightRole::kVector;
  if (vector && !plain) {
    throw Error(ErrorCode::kUnimplemented,
                fmt::format("{}: the cpu backend takes vectors of floats, not {}", weight.name,
                            ToString(format)));
  }
  if (!vector) CheckFormat(weight.name, format);
  weight.announced = true;
  weight.format = format;
  weight.rows_arrived = 0;
  if (vector) {
    weight.values = Buffer(static_cast<size_t>(Padded(weight.columns)) * sizeof(float));
    return;
  }
  weight.row_major = plain && weight.role == WeightRole::kEmbedding && !weight.tied_head;
  const int64_t bytes = weight.row_major ? weight.rows * weight.columns * ByteSize(format.element)
                                         : PackedBytes(format, weight.rows, weight.columns);
  const int64_t scales = PackedScales(format, weight.rows, weight.columns);
  const int64_t sums = HasRowSums(format) ? Padded(weight.rows) : 0;
  weight.values = Buffer(static_cast<size_t>(bytes));
  weight.scales = Buffer(static_cast<size_t>(scales) * sizeof(float));
  weight.row_sums = Buffer(static_cast<size_t>(sums) * sizeof(int32_t));
}

void WeightStore::Put(WeightId id, const WeightPanel& panel) {
  Weight& weight = weights_.at(static_cast<size_t>(id));
  const int64_t end = panel.row_begin + panel.rows;
  if (!weight.announced || panel.row_begin < 0 || panel.rows < 0 || end > weight.rows ||
      panel.row_begin % kPackedRows != 0 || (end % kPackedRows != 0 && end != weight.rows)) {
    throw Error(ErrorCode::kInternal,
                fmt::format("{}: panel of rows {} to {} does not fit {} rows{}", weight.name,
                            panel.row_begin, end, weight.rows,
                            weight.announced ? "" : ", which were not announced"));
  }
  if (weight.role == WeightRole::kVector) {
    PutVector(weight, panel);
  } else {
    PutMatrix(weight, panel);
  }
  weight.rows_arrived.fetch_add(panel.rows, std::memory_order_relaxed);
}

void WeightStore::PutVector(Weight& weight, const WeightPanel& panel) {
  if (panel.rows > 0) {
    ConvertToF32(weight.format.element, panel.values, weight.columns, weight.values.as<float>());
  }
}

void WeightStore::PutMatrix(Weight& weight, const WeightPanel& panel) {
  const WeightFormat& format = weight.format;
  const int64_t bytes = ByteSize(format.element);
  if (weight.row_major) {
    const int64_t row_bytes = weight.columns * bytes;
    std::memcpy(weight.values.as<char>() + panel.row_begin * row_bytes, panel.values,
                static_cast<size_t>(panel.rows * row_bytes));
    return;
  }
  if (format.element == DType::kS4) {
    kernels_.pack_rows_s4(static_cast<const int8_t*>(panel.values), panel.row_begin, panel.rows,
                          weight.columns, weight.values.data());
  } else {
    kernels_.pack_rows(panel.values, bytes, panel.row_begin, panel.rows, weight.columns,
                       weight.values.data());
  }
  if (!weight.scales.empty()) {
    PackScales(format, panel.scales, panel.row_begin, panel.rows, weight.columns,
               weight.scales.as<float>());
  }
  if (HasRowSums(format)) {
    SumRows(static_cast<const int8_t*>(panel.values), panel.rows, weight.columns,
            weight.row_sums.as<int32_t>() + panel.row_begin);
  }
}

void WeightStore::CheckComplete() const {
  for (const Weight& weight : weights_) {
    const int64_t arrived = weight.rows_arrived.load(std::memory_order_relaxed);
    if (weight.announced && arrived == weight.rows) continue;
    throw Error(ErrorCode::kInternal,
                fmt::format("{}: {} of {} rows were loaded", weight.name, arrived, weight.rows));
  }
}

void WeightStore::Describe(WeightId id, LinearArgs& args) const {
  const Weight& w = weight(id);
  args.weights = w.values.data();
  args.scales = w.scales.as<float>();
  args.row_sums = w.row_sums.as<int32_t>();
  args.block = PackedBlock(w.format, w.columns);
  args.n = w.rows;
  args.k = w.columns;
}

const float* WeightStore::Vector(WeightId id) const {
  return id == kNoWeight ? nullptr : weight(id).values.as<float>();
}

void WeightStore::EmbeddingRow(WeightId id, int64_t row, float* destination) const {
  const Weight& w = weight(id);
  if (!w.row_major) {
    UnpackRow(w.format, w.values.data(), w.scales.as<float>(), row, w.columns, destination);
    return;
  }
  const char* source = w.values.as<char>() + row * w.columns * ByteSize(w.format.element);
  kernels_.rows.to_f32(w.format.element, source, w.columns, destination);
}

uint64_t WeightStore::BytesOf(WeightId id) const {
  const Weight& w = weight(id);
  return w.values.bytes() + w.scales.bytes() + w.row_sums.bytes();
}

uint64_t WeightStore::total_bytes() const {
  uint64_t total = 0;
  for (size_t i = 0; i < weights_.size(); ++i) total += BytesOf(static_cast<WeightId>(i));
  return total;
}

}  // namespace octavo::cpu
