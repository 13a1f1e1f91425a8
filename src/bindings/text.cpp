// Bindings of the parsers of text.
#include "convert.hpp"

namespace robustfd {

void bind_text(nb::module_&) {}

}  // namespace robustfd
