// Runs programs.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

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

inline void expect_words(const std::string& text, std::initializer_list<std::string> words) {
  for (const std::string& word : words)
    EXPECT_NE(text.find(word), std::string::npos) << word << "\nis not in\n" << text;
}

}  // namespace isentrope
