// Bindings of the parsers of text, and of the hashing of names.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>

#include "categories.hpp"
#include "convert.hpp"
#include "crossing.hpp"
#include "csv.hpp"
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
nb::tuple csr_arrays(CsrMatrix& rows) {
    double* values = rows.values();
    std::int32_t* columns = rows.columns();
    nb::capsule owner(rows.release(), give_memory);
    return nb::make_tuple(Result<double>(values, {rows.entries()}, owner),
                          Result<std::int32_t>(columns, {rows.entries()}, owner), numpy_array(std::move(rows.starts)));
}

Letter letter_of(int code) {
    require(0 <= code && code < 256, "a letter must be a byte");
    return static_cast<Letter>(code);
}

std::size_t count_of(nb::handle source, int letter) {
    const Bytes bytes(source);
    const Letter wanted = letter_of(letter);
    nb::gil_scoped_release unlocked;
    return count_letter(bytes.text(), wanted);
}

nb::list bad_lines(const std::vector<BadLine>& bad) {
    nb::list found;
    for (const BadLine& line : bad) found.append(nb::make_tuple(line.begin, line.line, line.problem));
    return found;
}

void require_bits(int bits) { require(0 <= bits && bits <= 30, "bits must be from 0 to 30"); }

std::uint32_t hash_of(nb::handle source, std::uint32_t seed) {
    const Bytes bytes(source);
    return murmur3(bytes.text().data(), bytes.text().data() + bytes.text().size(), seed);
}

std::pair<Index, int> column_of(nb::handle source, int bits, std::uint32_t seed) {
    require_bits(bits);
    const Bytes bytes(source);
    const HashedName hashed = hash_name(bytes.text().data(), bytes.text().data() + bytes.text().size(), bits, seed);
    return {hashed.column, static_cast<int>(hashed.sign)};
}

Results columns_of_values(nb::handle prefix, nb::handle source, const In1<Index>& ends, int bits) {
    require_bits(bits);
    const Bytes name(prefix), bytes(source);
    const Span<const Index> places(ends.data(), ends.size());
    require(!places.empty() && places.front() >= 0 && std::is_sorted(places.begin(), places.end()) &&
            static_cast<std::size_t>(places.back()) <= bytes.text().size(), "ends must ascend within the text");
    std::vector<Index> columns(places.size() - 1);
    std::vector<double> signs(places.size() - 1);
    {
        nb::gil_scoped_release unlocked;
        hash_values(name.text(), bytes.text().data(), places, bits, columns.data(), signs.data());
    }
    return nb::make_tuple(numpy_array(std::move(columns)), numpy_array(std::move(signs)));
}

Results rows_of_table(const In2<double>& numbers, const In2<Index>& codes, const In1<Index>& bases,
                      const In1<Index>& columns, const In1<double>& signs) {
    const Matrix<const Index> chosen = matrix(codes);
    require(numbers.shape(0) == codes.shape(1) && bases.shape(0) == codes.shape(0) + 1 &&
            columns.shape(0) == signs.shape(0), "the shapes do not match");
    for (Index t = 0; t < chosen.rows; ++t) {
        const Index first = bases.data()[t], size = bases.data()[t + 1] - first;
        require(first >= 0 && first + size <= length(columns), "bases must be places in columns");
        for (Index i = 0; i < chosen.cols; ++i) require(chosen(t, i) < size, "a code is too large");
    }
    CsrMatrix rows(0);
    {
        nb::gil_scoped_release unlocked;
        rows = table_rows(matrix(numbers), {chosen, bases.data(), columns.data(), signs.data()});
    }
    return csr_arrays(rows);
}

// Add a feature to a row: a number under a name, or the feature "name=value" with the value 1.
void add_feature(nb::handle name, nb::handle value, int bits, CsrMatrix& rows) {
    nb::object held = nb::borrow(name);
    double number = 1.0;
    if (nb::isinstance<nb::str>(value)) {
        held = nb::steal(PyUnicode_FromFormat("%S=%U", name.ptr(), value.ptr()));
        if (!held.is_valid()) throw nb::python_error();
    } else {
        number = PyFloat_AsDouble(value.ptr());
        if (number == -1.0 && PyErr_Occurred()) throw nb::python_error();
    }
    if (number == 0.0) return;
    Py_ssize_t size = 0;
    const char* letters = nullptr;
    if (nb::isinstance<nb::str>(held)) {
        letters = PyUnicode_AsUTF8AndSize(held.ptr(), &size);
        if (!letters) throw nb::python_error();
    } else {
        if (!nb::isinstance<nb::bytes>(held)) throw nb::type_error("feature names must be strings");
        letters = nb::borrow<nb::bytes>(held).c_str();
        size = static_cast<Py_ssize_t>(nb::borrow<nb::bytes>(held).size());
    }
    const Letter* begin = reinterpret_cast<const Letter*>(letters);
    const HashedName hashed = hash_name(begin, begin + size, bits);
    rows.add(hashed.column, hashed.sign * number);
}

// Add the features of a mapping, or of pairs, to a row. Return what is wrong with it, if anything.
std::string add_features(nb::handle row, int bits, CsrMatrix& rows) {
    try {
        const nb::object items = nb::hasattr(row, "items") ? row.attr("items")() : nb::borrow(row);
        for (nb::handle item : items) {
            const nb::object pair = nb::steal(PySequence_Tuple(item.ptr()));
            if (!pair.is_valid()) throw nb::python_error();
            if (nb::len(pair) != 2) throw nb::value_error("features must be pairs of a name and a value");
            add_feature(pair[0], pair[1], bits, rows);
        }
        return "";
    } catch (nb::python_error& error) {
        if (!error.matches(PyExc_Exception)) throw;
        return nb::str(error.value()).c_str();
    } catch (nb::builtin_exception& error) {
        return error.what();
    }
}

Results rows_of_dicts(const nb::typed<nb::list, nb::any>& dicts, int bits) {
    require_bits(bits);
    CsrMatrix rows(16 * dicts.size());
    nb::list bad;
    Index k = 0;
    for (nb::handle row : dicts) {
        if (const std::string problem = add_features(row, bits, rows); !problem.empty()) {
            bad.append(nb::make_tuple(k, problem));
            rows.drop_row();
        }
        rows.settle();
        rows.end_row();
        ++k;
    }
    return nb::make_tuple(csr_arrays(rows), bad);
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
    for (CsrMatrix& part : parsed.parts) parts.append(csr_arrays(part));
    const std::size_t rows = parsed.labels.size();
    return nb::make_tuple(csr_arrays(parsed.rows), numpy_array(std::move(parsed.labels)), bad_lines(parsed.bad),
                          parsed.dropped, weights, numpy_array(std::move(parsed.tags), {rows, 2}), parts);
}

// An array with a row for each record: its start, its end, the lines before it and the number of its fields.
Result<Index> records_of(nb::handle source, int delimiter, std::size_t most) {
    const Bytes bytes(source);
    const Letter separator = letter_of(delimiter);
    std::vector<Index> numbers;
    {
        nb::gil_scoped_release unlocked;
        for (const Record& record : find_records(bytes.text(), separator, most))
            numbers.insert(numbers.end(), {record.begin, record.end, record.line, record.fields});
    }
    const std::size_t count = numbers.size() / 4;
    return numpy_array(std::move(numbers), {count, 4});
}

Index end_of_records(nb::handle source, int delimiter) {
    const Bytes bytes(source);
    const Letter separator = letter_of(delimiter);
    nb::gil_scoped_release unlocked;
    return last_record_end(bytes.text(), separator);
}

std::optional<nb::bytes> some_fields(nb::handle source, int delimiter, const In1<bool>& keep, int between) {
    const Bytes bytes(source);
    const Letter separator = letter_of(delimiter), other = letter_of(between);
    std::optional<std::vector<Letter>> copy;
    {
        nb::gil_scoped_release unlocked;
        copy = copy_fields(bytes.text(), separator, {keep.data(), keep.size()}, other);
    }
    if (!copy) return std::nullopt;
    return nb::bytes(copy->data(), copy->size());
}

// The arrays of a CSR matrix of scipy, as arguments: row pointers, columns and values.
using CsrArrays = std::tuple<In1<std::int32_t>, In1<std::int32_t>, In1<double>>;

Factors factors_of(const CsrArrays& arrays, std::size_t rows, Index columns) {
    const auto& [starts, places, values] = arrays;
    const std::int32_t *first = starts.data(), *last = first + starts.size();
    require(starts.size() == rows + 1 && *first >= 0 && std::is_sorted(first, last) &&
            static_cast<std::size_t>(last[-1]) <= places.size() && places.size() == values.size(),
            "row pointers must ascend within the entries");
    require(std::all_of(places.data(), places.data() + places.size(),
                        [columns](std::int32_t place) { return 0 <= place && place < columns; }),
            "there is a column beyond the last");
    return {first, places.data(), values.data()};
}

// Two groups of features, the ranks of their columns, the size of the second group, and the first column of products.
using PairArrays = std::tuple<CsrArrays, CsrArrays, bool, In2<std::int32_t>, std::int32_t, std::int32_t>;

Results rows_with_products(const CsrArrays& x, Index columns, const std::vector<PairArrays>& pairs, int bits) {
    require_bits(bits);
    require(std::get<0>(x).size() > 0, "there are no row pointers");
    const std::size_t rows = std::get<0>(x).size() - 1;
    const Factors features = factors_of(x, rows, columns);
    std::vector<Products> products;
    for (const auto& [left, right, same, ranks, many, first] : pairs) {
        const Matrix<const std::int32_t> rank = matrix(ranks);
        require(rank.rows == 2 && (many == 0 || rank.cols >= columns), "each column must have two ranks");
        products.push_back({factors_of(left, rows, columns), factors_of(right, rows, columns), same, rank[0], rank[1],
                            many, first, bits});
    }
    CsrMatrix result(0);
    {
        nb::gil_scoped_release unlocked;
        result = cross(features, static_cast<Index>(rows), products);
    }
    return csr_arrays(result);
}

void bind_records(nb::module_& m) {
    using namespace nb::literals;
    m.def("find_records", records_of, "text"_a, "delimiter"_a, "most"_a,
          "Return start, end, line and number of fields of the first records of CSV text.");
    m.def("last_record_end", end_of_records, "text"_a, "delimiter"_a,
          "Return the end of the last record that ends with a line feed, 0 if there is none.");
    m.def("copy_fields", some_fields, "text"_a, "delimiter"_a, "keep"_a.noconvert(), "between"_a,
          "Return some fields of all records; None if a record has too few or too many.");
    m.def("cross", rows_with_products, "x"_a, "columns"_a, "pairs"_a, "bits"_a,
          "Return CSR arrays of x with the products of pairs of groups as further columns.");
}

void bind_hashing(nb::module_& m) {
    using namespace nb::literals;
    m.def("murmur3", hash_of, "text"_a, "seed"_a = 0, "Return MurmurHash3 of bytes, from 0 to 2^32 - 1.");
    m.def("hash_name", column_of, "name"_a, "bits"_a, "seed"_a = 0,
          "Return the column, below 2^bits, and the sign that FeatureHasher gives to a name.");
    m.def("hash_values", columns_of_values, "prefix"_a, "text"_a, "ends"_a.noconvert(), "bits"_a,
          "Return the columns and signs of the names prefix + text[ends[k]:ends[k + 1]].");
    m.def("hash_rows", rows_of_dicts, "rows"_a, "bits"_a,
          "Return CSR arrays of dicts, as FeatureHasher makes them, and the numbers and problems of bad ones.");
    m.def("table_rows", rows_of_table, "numbers"_a.noconvert(), "codes"_a.noconvert(), "bases"_a.noconvert(),
          "columns"_a.noconvert(), "signs"_a.noconvert(),
          "Return CSR arrays of numbers and of values codes[t, i], whose columns and signs start at bases[t].");
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
    bind_hashing(m);
    bind_records(m);
    m.def("count_letter", count_of, "text"_a, "letter"_a, "Return how often a byte occurs, faster than bytes.count.");
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
