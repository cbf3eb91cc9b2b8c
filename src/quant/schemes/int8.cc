// int8, also known as tpu_int8: per-channel symmetric weights, 16-bit activations (W8A16). The
// formula is the one of vLLM's tpu_int8, except that the scale is kept in float32: the codes were
// made with the unrounded scale, so a scale rounded to bf16 would be off by up to 2^-9 for the
// whole row.
#include <memory>

#include "quant/row_quantizer.h"
#include "quant/schemes/schemes.h"

namespace octavo {
namespace {

class Int8Scheme final : public QuantScheme {
 public:
  std::string_view name() const override { return "int8"; }

  LinearRecipe RecipeFor(const LinearLayer& /*layer*/) const override {
    return {.keep = false,
            .format = WeightFormat::S8Channel(),
            .activations = ActivationTreatment::k16Bit};
  }

  void QuantizePanel(const LinearLayer& layer, int64_t row_begin, int64_t rows, const void* source,
                     void* values, float* scales) const override {
    QuantizeRowsS8Channel({.tensor = layer.tensor,
                           .stored = layer.stored,
                           .row_begin = row_begin,
                           .rows = rows,
                           .in_features = layer.in_features,
                           .data = source},
                          static_cast<int8_t*>(values), scales);
  }
};

}  // namespace

std::unique_ptr<const QuantScheme> MakeInt8Scheme() { return std::make_unique<Int8Scheme>(); }

}  // namespace octavo
