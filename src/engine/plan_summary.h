// A load plan in one paragraph, for the log.
#pragma once

#include <string>

#include "engine/loaded_model.h"

namespace octavo {

// "LlamaForCausalLM, 494.0 million parameters: 168 of 290 weights become s8 per channel (f32
// scales), the others stay as they are; 942 MiB to read, 606 MiB in memory"
std::string SummarizePlan(const ModelPlan& model);

}  // namespace octavo
