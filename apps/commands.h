// The commands of the program, one file each. Each function adds its command to the command line;
// parsing a line that names it sets `action` to what is to be done, which returns the exit status.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace octavo {

using Action = std::function<int()>;

void AddRunCommand(CLI::App& app, Action& action);
void AddChatCommand(CLI::App& app, Action& action);
void AddInspectCommand(CLI::App& app, Action& action);
void AddBenchCommand(CLI::App& app, Action& action);
void AddLogitsCommand(CLI::App& app, Action& action);
void AddVersionCommand(CLI::App& app, Action& action);

}  // namespace octavo
