// The program `octavo`: reads the command line and runs one command.
#include <fcntl.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <sstream>

#include "apps/commands.h"
#include "apps/exit_status.h"
#include "apps/terminal.h"

namespace octavo {
namespace {

// A standard stream that the caller closed must not become the next file that is opened: it gets a
// descriptor on which every read and write fails.
void OccupyClosedStreams() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) == -1) open("/", O_PATH);
  }
}

int Main(int argc, char** argv) {
  OccupyClosedStreams();
  // A closed pipe shows itself as an error of the write instead.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // so does a file over the size limit
  CLI::App app("Runs 16-bit Hugging Face checkpoints in 8 bits, quantized while they load",
               "octavo");
  app.set_version_flag("--version", std::string("octavo ") + OCTAVO_VERSION);
  app.require_subcommand(1);
  Action action;
  AddRunCommand(app, action);
  AddChatCommand(app, action);
  AddInspectCommand(app, action);
  AddBenchCommand(app, action);
  AddLogitsCommand(app, action);
  AddVersionCommand(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream out, messages;  // help goes to `out`
    const int status = app.exit(error, out, messages);
    if (app.get_subcommands().empty() && !app.remaining().empty()) {
      messages.str("");
      messages << "unknown command \"" << app.remaining().front()
               << "\"\nRun with --help for more information.";
    }
    if (status != 0) {
      WriteError(messages.str().substr(0, messages.str().find_last_not_of('\n') + 1));
      return kExitUsage;
    }
    return RunReportingErrors([&] {
      WriteOutput(out.str());
      return kExitSuccess;
    });
  }
  return RunReportingErrors(action);
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) { return octavo::Main(argc, argv); }
