// Since 2.34 glibc runs a program's constructors itself. Before, the program's startup code passed
// it a function that does, which current startup code lacks. So main is started through here.

extern "C" {

using Initialize = void (*)(int, char**, char**);
using Main = int (*)(int, char**, char**);
extern const Initialize __init_array_start[], __init_array_end[];

int __real___libc_start_main(Main main, int argc, char** argv, Initialize init, void (*fini)(),
                             void (*rtld_fini)(), void* stack_end);

static void initialize(int argc, char** argv, char** environment) {
  for (const Initialize* f = __init_array_start; f != __init_array_end; ++f)
    (*f)(argc, argv, environment);
}

int __wrap___libc_start_main(Main main, int argc, char** argv, Initialize, void (*fini)(),
                             void (*rtld_fini)(), void* stack_end) {
  return __real___libc_start_main(main, argc, argv, initialize, fini, rtld_fini, stack_end);
}

}  // extern "C"
