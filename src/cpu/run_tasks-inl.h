// End of a file of tasks, which defines ISENTROPE_TASKS(define) as lines
//
//   define(run_decode, DecodeTask, ForwardCall)
//
// and includes this after its classes, once for each target. Each line defines a function
// run_decode(call, begin, end) that runs these work items on the active target. One task object
// serves all its items: its memory and its lists are set up once.

#define ISENTROPE_ITEMS(run_items, Task, Call)                                    \
  void run_items##_here(const Call& call, std::int64_t begin, std::int64_t end) { \
    Task task(call);                                                              \
    for (std::int64_t index = begin; index < end; ++index) task.run(index);       \
  }
#define ISENTROPE_DISPATCH(run_items, Task, Call)                          \
  HWY_EXPORT(run_items##_here);                                            \
  void run_items(const Call& call, std::int64_t begin, std::int64_t end) { \
    HWY_DYNAMIC_DISPATCH(run_items##_here)(call, begin, end);              \
  }

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {
namespace {
ISENTROPE_TASKS(ISENTROPE_ITEMS)
}  // namespace
}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isentrope {
// NOLINTNEXTLINE(misc-definitions-in-headers): each file that includes this has its own tasks
ISENTROPE_TASKS(ISENTROPE_DISPATCH)
}  // namespace isentrope
#endif  // HWY_ONCE

#undef ISENTROPE_TASKS
#undef ISENTROPE_ITEMS
#undef ISENTROPE_DISPATCH
