// Bindings of the learners of the paper.
#include "convert.hpp"

namespace robustfd {

void bind_paper(nb::module_&) {}

}  // namespace robustfd
