// Runs programs.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "tests/support/words.h"

namespace isentrope {

struct Outcome {
  int code = 0;  // 128 + signal if ended by one
  std::string out, err;
};

class Command {
 public:
  // Starts the program.
  explicit Command(const std::vector<std::string>& arguments) {
    pid_ = fork();
    if (pid_ != 0) return;
    ::signal(SIGINT, SIG_DFL);  // background processes of a shell ignore it
    redirect(STDOUT_FILENO, folder_ / "out");
    redirect(STDERR_FILENO, folder_ / "err");
    std::vector<char*> argv;
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }

  void signal(int number) const { kill(pid_, number); }

  Outcome wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return {code, read_file(folder_ / "out"), read_file(folder_ / "err")};
  }

 private:
  static void redirect(int descriptor, const std::filesystem::path& path) {
    dup2(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), descriptor);
  }

  TemporaryFolder folder_;
  pid_t pid_ = 0;
};

inline Outcome run_command(const std::vector<std::string>& arguments) {
  return Command(arguments).wait();
}

// Expects exit status 2, and one line on stderr with the given words.
inline void expect_one_line(const Outcome& outcome, const std::vector<std::string>& words) {
  EXPECT_EQ(outcome.code, 2) << outcome.out << outcome.err;
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
  expect_words(outcome.err, words);
}

}  // namespace isentrope
