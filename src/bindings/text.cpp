// Bindings of the parsers of text.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>

#include "convert.hpp"
#include "libsvm.hpp"
#include "vw.hpp"

namespace robustfd {

namespace {

using Results = nb::typed<nb::tuple, nb::any, nb::ellipsis>;

// The bytes of a Python object. It must outlive every use of the bytes, and needs the interpreter's lock at its end.
class Bytes {
  public:
    explicit Bytes(nb::handle source) {
        if (PyObject_GetBuffer(source.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
    }
    Bytes(const Bytes&) = delete;
    Bytes& operator=(const Bytes&) = delete;
    ~Bytes() { PyBuffer_Release(&view_); }
    Text text() const { return {static_cast<const Letter*>(view_.buf), static_cast<std::size_t>(view_.len)}; }

  private:
    Py_buffer view_;
};

// The arguments of a CSR matrix of scipy: values, columns and row pointers.
nb::tuple csr_arrays(SparseRows& rows) {
    double* values = rows.values();
    std::int32_t* columns = rows.columns();
    nb::capsule owner(rows.release(), [](void* memory) noexcept { std::free(memory); });
    return nb::make_tuple(Result<double>(values, {rows.entries()}, owner),
                          Result<std::int32_t>(columns, {rows.entries()}, owner), numpy_array(std::move(rows.starts)));
}

std::size_t lines_of(nb::handle source) {
    const Bytes bytes(source);
    nb::gil_scoped_release unlocked;
    return count_lines(bytes.text());
}

nb::list bad_lines(const std::vector<BadLine>& bad) {
    nb::list found;
    for (const BadLine& line : bad) found.append(nb::make_tuple(line.begin, line.line, line.problem));
    return found;
}

ParseOptions options_of(bool labelled, Index first, Index width, int bits, bool drop) {
    require(first >= 0 && bits <= 30, "first must be at least 0 and bits at most 30");
    return {labelled, first, width < 0 ? std::numeric_limits<Index>::max() : width, bits, drop};
}

Results libsvm_rows(nb::handle source, bool labelled, Index first, Index width, int bits, bool drop) {
    const Bytes bytes(source);
    const ParseOptions options = options_of(labelled, first, width, bits, drop);
    Parsed parsed(0);
    {
        nb::gil_scoped_release unlocked;
        parsed = parse_libsvm(bytes.text(), options);
    }
    return nb::make_tuple(csr_arrays(parsed.rows), numpy_array(std::move(parsed.labels)), bad_lines(parsed.bad),
                          parsed.dropped);
}

nb::object libsvm_scan(nb::handle source, bool labelled, bool named, std::size_t most) {
    const Bytes bytes(source);
    std::optional<Scan> scan;
    {
        nb::gil_scoped_release unlocked;
        scan = scan_libsvm(bytes.text(), labelled, named, most);
    }
    if (!scan) return nb::none();
    return nb::make_tuple(scan->rows, scan->labels, scan->least, scan->largest);
}

Results vw_rows(nb::handle source, bool labelled, Index first, Index width, int bits, bool drop,
                  const std::vector<std::pair<Letter, Index>>& groups) {
    const Bytes bytes(source);
    const ParseOptions options = options_of(labelled, first, width, bits, drop);
    std::vector<Group> chosen;
    for (const auto& [letter, hash] : groups) chosen.push_back({letter, hash});
    ParsedVw parsed(0);
    {
        nb::gil_scoped_release unlocked;
        parsed = parse_vw(bytes.text(), options, chosen);
    }
    nb::object weights = nb::none();
    if (!std::all_of(parsed.weights.begin(), parsed.weights.end(), [](double x) { return x == 1.0; }))
        weights = nb::cast(numpy_array(std::move(parsed.weights)));
    nb::list parts;
    for (SparseRows& part : parsed.parts) parts.append(csr_arrays(part));
    const std::size_t rows = parsed.labels.size();
    return nb::make_tuple(csr_arrays(parsed.rows), numpy_array(std::move(parsed.labels)), bad_lines(parsed.bad),
                          parsed.dropped, weights, numpy_array(std::move(parsed.tags), {rows, 2}), parts);
}

void bind_problems(nb::module_& m) {
    nb::enum_<Problem>(m, "Problem", "Why a line is not a row.")
        .value("NO_LABEL", Problem::no_label)
        .value("NO_INDEX", Problem::no_index)
        .value("BELOW_FIRST", Problem::below_first)
        .value("BEYOND_LAST", Problem::beyond_last)
        .value("NO_VALUE", Problem::no_value)
        .value("NOT_FINITE", Problem::not_finite)
        .value("TOO_LARGE", Problem::too_large)
        .value("NO_BAR", Problem::no_bar)
        .value("BAD_WEIGHT", Problem::bad_weight)
        .value("HAS_BASE", Problem::has_base)
        .value("NO_SPACE", Problem::no_space)
        .value("UNLABELLED", Problem::unlabelled);
}

}  // namespace

void bind_text(nb::module_& m) {
    using namespace nb::literals;
    bind_problems(m);
    m.def("count_lines", lines_of, "text"_a, "Return the number of line feeds.");
    m.def("parse_libsvm", libsvm_rows, "text"_a, "labelled"_a, "first"_a, "width"_a, "bits"_a, "drop"_a,
          "Return CSR arrays, labels, bad lines (offset, line, problem) and the number of dropped entries.");
    m.def("scan_libsvm", libsvm_scan, "text"_a, "labelled"_a, "named"_a, "most"_a,
          "Return the rows, distinct labels, least and largest index of plain text, None if it is not plain.",
          nb::sig("def scan_libsvm(text: object, labelled: bool, named: bool, most: int)"
                  " -> tuple[int, list[float], int, int] | None"));
    m.def("parse_vw", vw_rows, "text"_a, "labelled"_a, "first"_a, "width"_a, "bits"_a, "drop"_a, "groups"_a,
          "Return what parse_libsvm returns, weights (None if all are 1), places of tags, and CSR arrays of groups.");
}

}  // namespace robustfd
