// Sizes of the packed layout that kernel_table.h describes, and reading a row back out of it.
#pragma once

#include <cstdint>

#include "kernels/kernel_table.h"
#include "tensor/weight_format.h"

namespace octavo {

// kUnimplemented, naming the format, for one that no linear kernel reads.
LinearFormat LinearFormatOf(const WeightFormat& format);
// Columns per scale as the kernels take them (LinearArgs::block): of s4 per channel, k rounded up
// to a multiple of kBlockUnit; 0 for formats without blocks.
int64_t PackedBlock(const WeightFormat& format, int64_t k);
// Bytes of the packed values of an [n, k] weight.
int64_t PackedBytes(const WeightFormat& format, int64_t n, int64_t k);
// Floats of its packed scales, 0 for a format without scales.
int64_t PackedScales(const WeightFormat& format, int64_t n, int64_t k);
// Puts the scales of a panel, [rows] or [rows, ceil(k / block)], where the kernels look for them.
void PackScales(const WeightFormat& format, const float* source, int64_t row_begin, int64_t rows,
                int64_t k, float* packed);
// Row `row` of a packed [n, k] weight, as float32 [k]; `scales` packed, null without scales.
void UnpackRow(const WeightFormat& format, const void* packed, const float* scales, int64_t row,
               int64_t k, float* destination);

}  // namespace octavo
