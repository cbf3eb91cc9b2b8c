// A quantization scheme: what each linear of a checkpoint becomes, and how rows are turned into it.
// Knows formats; does not know kernels or backends.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/weight_format.h"
#include "tensor/weight_panel.h"

namespace octavo {

enum class ActivationTreatment : uint8_t {
  k16Bit,  // activations keep at least bfloat16's accuracy
};

// What a linear becomes.
struct LinearRecipe {
  bool keep = true;  // stays in its stored type, `format` is not used
  WeightFormat format;
  ActivationTreatment activations = ActivationTreatment::k16Bit;
};

// A linear of the model as the checkpoint stores it.
struct LinearLayer {
  std::string tensor;  // checkpoint tensor name, "model.layers.0.self_attn.q_proj.weight"
  int64_t out_features = 0;
  int64_t in_features = 0;
  DType stored = DType::kBf16;
};

class QuantScheme {
 public:
  virtual ~QuantScheme() = default;
  virtual std::string_view name() const = 0;
  // Which recipe a linear gets that neither the user nor its role keeps in 16 bits.
  virtual LinearRecipe RecipeFor(const LinearLayer& layer) const = 0;
  // Quantizes rows [row_begin, row_begin + rows) given as [rows, in_features] of layer.stored (may
  // be unaligned). `values` and `scales` hold StoredBytes' worth for those rows; thread-safe.
  // Throws kDataLoss naming the tensor and row where a weight is not finite.
  virtual void QuantizePanel(const LinearLayer& layer, int64_t row_begin, int64_t rows,
                             const void* source, void* values, float* scales) const = 0;
};

// The scheme of a name or alias ("int8", "tpu_int8"), null for "none". Throws kInvalidArgument
// listing the names there are.
std::unique_ptr<const QuantScheme> MakeScheme(std::string_view name);
std::vector<std::string> SchemeNames();

}  // namespace octavo
