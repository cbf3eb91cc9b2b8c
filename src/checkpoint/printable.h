// Text out of a file, made fit for a message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace octavo {

// `text` with control characters and ill-formed bytes escaped, cut after `limit` bytes: a name in a
// damaged file may be megabytes long or hold terminal commands.
std::string Printable(std::string_view text, size_t limit = 160);

// What nlohmann::json says about a syntax error ("parse error at line 1, column 7: ..."), without
// its own error number and without the text it had read last.
std::string PrintableJsonError(std::string_view what);

}  // namespace octavo
