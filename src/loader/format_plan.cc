// The plan as people read it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "loader/load_plan.h"

namespace octavo {
namespace {

constexpr size_t kColumns = 7;
using Row = std::array<std::string, kColumns>;

constexpr std::array<bool, kColumns> kRightAligned = {false, false, false, false,
                                                      true,  true,  false};

// "3.00 MiB"; exact below a KiB.
std::string FormatBytes(uint64_t bytes) {
  constexpr std::array<std::string_view, 4> kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.2f} {}", value, kUnits[unit]);
}

Row RowOf(const PlannedWeight& weight, const Graph& graph) {
  const TensorEntry& entry = *weight.source.entry;
  return {graph.weight(weight.id).name,
          ToString(entry.shape),
          Name(entry.dtype),
          ToString(weight.format),
          FormatBytes(weight.bytes_read),
          FormatBytes(weight.bytes_kept),
          weight.reason};
}

void AppendRow(const Row& row, const std::array<size_t, kColumns>& widths, std::string& text) {
  std::string line;
  for (size_t column = 0; column < kColumns; ++column) {
    if (column > 0) line += "  ";
    line += kRightAligned[column] ? fmt::format("{:>{}}", row[column], widths[column])
                                  : fmt::format("{:<{}}", row[column], widths[column]);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  text += line;
  text += '\n';
}

}  // namespace

std::string FormatPlan(const LoadPlan& plan, const Graph& graph) {
  std::vector<Row> rows = {{"tensor", "shape", "stored", "becomes", "read", "kept", "reason"}};
  for (const PlannedWeight& weight : plan.weights) rows.push_back(RowOf(weight, graph));
  std::array<size_t, kColumns> widths{};
  for (const Row& row : rows) {
    for (size_t column = 0; column < kColumns; ++column) {
      widths[column] = std::max(widths[column], row[column].size());
    }
  }
  std::string text;
  for (const Row& row : rows) AppendRow(row, widths, text);
  const auto quantized =
      std::count_if(plan.weights.begin(), plan.weights.end(),
                    [](const PlannedWeight& weight) { return !weight.recipe.keep; });
  text +=
      fmt::format("total: {} tensors, {} quantized ({}); {} read ({} bytes), {} kept ({} bytes)\n",
                  plan.weights.size(), quantized, plan.scheme, FormatBytes(plan.bytes_read),
                  plan.bytes_read, FormatBytes(plan.bytes_kept), plan.bytes_kept);
  for (const std::string& warning : plan.warnings) text += fmt::format("warning: {}\n", warning);
  return text;
}

}  // namespace octavo
