// Numbers and lists as the program prints them.
#pragma once

#include <string>
#include <vector>

namespace octavo {

// "1.50 GiB"; exact below a KiB.
std::string FormatSize(double bytes);

// "a, b, c"
std::string JoinNames(const std::vector<std::string>& names);

}  // namespace octavo
