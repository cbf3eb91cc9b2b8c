// Sizes of the packed layout that kernel_table.h describes, and reading a row back out of it.
#pragma once

#include <cstdint>

#include "kernels/kernel_table.h"
#include "tensor/dtype.h"

namespace octavo {

LinearFormat LinearFormatOf(DType element);  // kInternal for an element no linear kernel reads
// Bytes of the packed values of an [n, k] weight.
int64_t PackedBytes(DType element, int64_t n, int64_t k);
// Row `row` of a packed [n, k] weight, as float32 [k]; `scales` for s8, else null.
void UnpackRow(DType element, const void* packed, const float* scales, int64_t row, int64_t k,
               float* destination);

}  // namespace octavo
