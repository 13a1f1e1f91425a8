// Bindings of the parsers of text, and of the hashing of names.
#include "scan.hpp"
#include "words.hpp"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>

#include "convert.hpp"

namespace nanobind::detail {

// Text is the buffer of any object that has one.
template <> struct type_caster<robustfd::Text> {
    NB_TYPE_CASTER(robustfd::Text, const_name("object"))
    type_caster() = default;
    type_caster(const type_caster&) = delete;
    ~type_caster() {
        if (buffer.obj) PyBuffer_Release(&buffer);
    }
    bool from_python(handle source, std::uint8_t, cleanup_list*) noexcept {
        if (PyObject_GetBuffer(source.ptr(), &buffer, PyBUF_SIMPLE) != 0) return PyErr_Clear(), false;
        value = {static_cast<const robustfd::Letter*>(buffer.buf), static_cast<std::size_t>(buffer.len)};
        return true;
    }
    Py_buffer buffer{};
};

}  // namespace nanobind::detail

namespace robustfd {

namespace {

using namespace nb::literals;
using Results = nb::typed<nb::tuple, nb::any, nb::ellipsis>;

// The arguments of a CSR matrix of scipy: values, columns and row pointers.
nb::tuple csr_arrays(CsrMatrix rows) {
    double* values = rows.values();
    std::int32_t* columns = rows.columns();
    nb::capsule owner(rows.release(), give_memory);
    return nb::make_tuple(Result<double>(values, {rows.entries()}, owner),
                          Result<std::int32_t>(columns, {rows.entries()}, owner), numpy_array(std::move(rows.starts)));
}

// ---------------------------------------------------------------------------------------------------- hashing

void require_bits(int bits) { require(0 <= bits && bits <= 30, "bits must be from 0 to 30"); }

std::pair<Index, int> column_of(Text name, int bits, std::uint32_t seed) {
    require_bits(bits);
    const HashedName hashed = hash_name(name, bits, seed);
    return {hashed.column, static_cast<int>(hashed.sign)};
}

Results columns_of_values(Text prefix, Text text, Span<const Index> ends, int bits) {
    require_bits(bits);
    require(!ends.empty() && ends.front() >= 0 && std::is_sorted(ends.begin(), ends.end()) &&
            static_cast<std::size_t>(ends.back()) <= text.size(), "ends must ascend within the text");
    HashedValues found = unlocked([&] { return hash_values(prefix, text, ends, bits); });
    return nb::make_tuple(numpy_array(std::move(found.starts)), numpy_array(std::move(found.columns)),
                          numpy_array(std::move(found.values)));
}

Results rows_of_table(Matrix<const double> numbers, Matrix<const Index> codes, Span<const Index> starts,
                      Span<const Index> columns, Span<const double> values) {
    require(numbers.rows == codes.cols && columns.size() == values.size(), "the shapes do not match");
    require(!starts.empty() && starts.front() >= 0 && std::is_sorted(starts.begin(), starts.end()) &&
            starts.back() <= length(columns), "starts must ascend within the columns");
    for (Index t = 0; t < codes.rows; ++t)
        for (Index i = 0; i < codes.cols; ++i) require(codes(t, i) + 1 < length(starts), "a code is too large");
    return csr_arrays(
        unlocked([&] { return table_rows(numbers, {codes, starts.data(), columns.data(), values.data()}); }));
}

// The bytes of a str in UTF-8.
Text letters_of(nb::handle text) {
    Py_ssize_t size = 0;
    const char* letters = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
    if (!letters) throw nb::python_error();
    return {reinterpret_cast<const Letter*>(letters), static_cast<std::size_t>(size)};
}

nb::typed<nb::list, nb::typed<nb::tuple, nb::str, double>> terms_of(const nb::str& value) {
    // Text from JSON may have halves of surrogate pairs.
    const nb::object bytes = nb::steal(PyUnicode_AsEncodedString(value.ptr(), "utf-8", "surrogatepass"));
    if (!bytes.is_valid()) throw nb::python_error();
    const nb::bytes held = nb::borrow<nb::bytes>(bytes);
    nb::list result;
    Terms terms;
    for (const auto& [name, number] : terms.of({reinterpret_cast<const Letter*>(held.c_str()), held.size()})) {
        const char* letters = reinterpret_cast<const char*>(name.data());
        const auto size = static_cast<Py_ssize_t>(name.size());
        const nb::object term = nb::steal(PyUnicode_DecodeUTF8(letters, size, "surrogatepass"));
        if (!term.is_valid()) throw nb::python_error();
        result.append(nb::make_tuple(term, number));
    }
    return result;
}

// Add a feature to a row: a number under a name, or the terms of a text, "name=term".
void add_feature(nb::handle name, nb::handle value, int bits, CsrMatrix& rows) {
    if (nb::isinstance<nb::str>(value)) {
        const nb::object prefix = nb::steal(PyUnicode_FromFormat("%S=", name.ptr()));
        if (!prefix.is_valid()) throw nb::python_error();
        const Text text = letters_of(value);
        const Index ends[] = {0, length(text)};
        const HashedValues found = hash_values(letters_of(prefix), text, ends, bits);
        for (std::size_t k = 0; k < found.columns.size(); ++k) rows.add(found.columns[k], found.values[k]);
        return;
    }
    const double number = PyFloat_AsDouble(value.ptr());
    if (number == -1.0 && PyErr_Occurred()) throw nb::python_error();
    if (number == 0.0) return;
    Text text;
    if (nb::isinstance<nb::str>(name)) {
        text = letters_of(name);
    } else {
        if (!nb::isinstance<nb::bytes>(name)) throw nb::type_error("feature names must be strings");
        const nb::bytes held = nb::borrow<nb::bytes>(name);
        text = {reinterpret_cast<const Letter*>(held.c_str()), held.size()};
    }
    const HashedName hashed = hash_name(text, bits);
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
            bad.append(nb::make_tuple(k, nb::str(problem.c_str(), problem.size())));
            rows.drop_row();
        }
        rows.end_row();
        ++k;
    }
    return nb::make_tuple(csr_arrays(std::move(rows)), bad);
}

void bind_hashing(nb::module_& m) {
    m.def("murmur3", murmur3, "text"_a, "seed"_a = 0, "Return MurmurHash3 of bytes, from 0 to 2^32 - 1.");
    m.def("hash_name", column_of, "name"_a, "bits"_a, "seed"_a = 0,
          "Return the column, below 2^bits, and the sign that FeatureHasher gives to a name.");
    m.def("hash_values", columns_of_values, "prefix"_a, "text"_a, "ends"_a, "bits"_a,
          "Return the starts of the values text[ends[k]:ends[k + 1]] among their terms, with columns and numbers.");
    m.def("text_terms", terms_of, "value"_a,
          "Return the features of a text value, each with a number: its words, pairs of words, or the value itself.");
    m.def("hash_rows", rows_of_dicts, "rows"_a, "bits"_a,
          "Return CSR arrays of dicts, as FeatureHasher makes them, and the numbers and problems of bad ones.");
    m.def("table_rows", rows_of_table, "numbers"_a, "codes"_a, "starts"_a, "columns"_a, "values"_a,
          "Return CSR arrays of numbers and of codes[t, i] = k, for the entries starts[k] to starts[k + 1] - 1.");
}

// ------------------------------------------------------------------------------------------------------ lines

ParseOptions options_of(bool labelled, Index first, Index width, int bits, bool drop) {
    require(first >= 0 && bits <= 30, "first must be at least 0 and bits at most 30");
    return {labelled, first, width < 0 ? std::numeric_limits<Index>::max() : width, bits, drop};
}

// What both parsers return.
nb::tuple parsed_arrays(Parsed& parsed) {
    nb::list bad;
    for (const BadLine& line : parsed.bad) bad.append(nb::make_tuple(line.begin, line.line, line.problem));
    return nb::make_tuple(csr_arrays(std::move(parsed.rows)), numpy_array(std::move(parsed.labels)), bad,
                          parsed.dropped);
}

Results libsvm_rows(Text text, bool labelled, Index first, Index width, int bits, bool drop) {
    const ParseOptions options = options_of(labelled, first, width, bits, drop);
    Parsed parsed = unlocked([&] { return parse_libsvm(text, options); });
    return parsed_arrays(parsed);
}

// The rows, distinct labels, least and largest index of text.
using Scanned = std::optional<std::tuple<Index, std::vector<double>, Index, Index>>;

Scanned scanned(const std::optional<Scan>& scan) {
    if (!scan) return std::nullopt;
    return std::tuple(scan->rows, scan->labels, scan->least, scan->largest);
}

Scanned libsvm_scan(Text text, bool labelled, bool named, std::size_t most) {
    return scanned(scan_libsvm(text, labelled, named, most));
}

void bind_scans(nb::module_& m) {
    m.def("scan_libsvm", libsvm_scan, "text"_a, "labelled"_a, "named"_a, "most"_a, Unlocked(),
          "Return the rows, distinct labels, least and largest index of plain text, None if it is not plain.");
    nb::class_<FileScan>(m, "FileScan", "What scan_libsvm finds in a file of labelled rows, piece by piece.")
        .def(nb::init<const std::filesystem::path&, std::size_t>(), "path"_a, "most"_a)
        .def("advance", &FileScan::advance, "bytes"_a, Unlocked(),
             "Read about so many bytes, and return whether there may be more. Only one thread at a time may call it.")
        .def("result", [](const FileScan& scan) { return scanned(scan.result()); },
             "Return what was found, None if the text is not plain.");
}

Results vw_rows(Text text, bool labelled, Index first, Index width, int bits, bool drop,
                const std::vector<std::pair<Letter, Index>>& groups) {
    const ParseOptions options = options_of(labelled, first, width, bits, drop);
    std::vector<Group> chosen;
    for (const auto& [letter, hash] : groups) chosen.push_back({letter, hash});
    Parsed parsed = unlocked([&] { return parse_vw(text, options, chosen); });
    nb::object weights = nb::none();
    if (!std::all_of(parsed.weights.begin(), parsed.weights.end(), [](double x) { return x == 1.0; }))
        weights = nb::cast(numpy_array(std::move(parsed.weights)));
    nb::list of_groups;
    for (CsrMatrix& group : parsed.groups) of_groups.append(csr_arrays(std::move(group)));
    const std::size_t rows = parsed.labels.size();
    const nb::object tags = nb::cast(numpy_array(std::move(parsed.tags), {rows, 2}));
    return nb::borrow<nb::tuple>(parsed_arrays(parsed) + nb::make_tuple(weights, tags, of_groups));
}

Results log_rows(Text text, bool labelled, Index first, Index width, int bits, bool drop, bool blocks) {
    const ParseOptions options = options_of(labelled, first, width, bits, drop);
    Parsed parsed = unlocked([&] { return blocks ? parse_blocks(text, options) : parse_actions(text, options); });
    const std::size_t rows = parsed.labels.size();
    nb::list arms;
    if (blocks) arms.append(csr_arrays(std::move(parsed.groups[0])));
    const nb::tuple more = nb::make_tuple(
        nb::none(), numpy_array(std::move(parsed.tags), {rows, 2}), arms, numpy_array(std::move(parsed.chosen)),
        numpy_array(std::move(parsed.probabilities)), numpy_array(std::move(parsed.actions)),
        numpy_array(std::move(parsed.starts)));
    return nb::borrow<nb::tuple>(parsed_arrays(parsed) + more);
}

void bind_lines(nb::module_& m) {
    nb::enum_<Problem> problems(m, "Problem", "Why a line is not a row.");
    auto problem = static_cast<int>(Problem::no_label);
    for (const char* name : {"NO_LABEL", "NO_INDEX", "BELOW_FIRST", "BEYOND_LAST", "NO_VALUE", "NOT_FINITE",
                             "TOO_LARGE", "NO_BAR", "BAD_WEIGHT", "HAS_BASE", "NO_SPACE", "UNLABELLED", "BAD_ACTION",
                             "TWO_COSTS", "BAD_PROBABILITY", "NO_ACTIONS", "LATE_SHARED"})
        problems.value(name, static_cast<Problem>(problem++));
    m.def("parse_libsvm", libsvm_rows, "text"_a, "labelled"_a, "first"_a, "width"_a, "bits"_a, "drop"_a,
          "Return CSR arrays, labels, bad lines (offset, line, problem) and the number of dropped entries.");
    m.def("parse_vw", vw_rows, "text"_a, "labelled"_a, "first"_a, "width"_a, "bits"_a, "drop"_a, "groups"_a,
          "Return what parse_libsvm returns, weights (None if all are 1), places of tags, and CSR arrays of groups.");
    m.def("parse_log", log_rows, "text"_a, "labelled"_a, "first"_a, "width"_a, "bits"_a, "drop"_a, "blocks"_a,
          "Return the same for a log of a bandit, with costs as labels, the features of actions as the only group, and "
          "chosen actions, their probabilities, all actions, and the starts of those of each row.");
}

// -------------------------------------------------------------------------------------------- CSV and products

// An array with a row for each record: its start, its end, the lines before it and the number of its fields.
Result<Index> records_of(Text text, Letter delimiter, std::size_t most) {
    const std::vector<Record> records = unlocked([&] { return find_records(text, delimiter, most); });
    std::vector<Index> numbers;
    for (const Record& record : records)
        numbers.insert(numbers.end(), {record.begin, record.end, record.line, record.fields});
    return numpy_array(std::move(numbers), {records.size(), 4});
}

std::optional<nb::bytes> some_fields(Text text, Letter delimiter, Span<const bool> keep, Letter between) {
    const auto copy = unlocked([&] { return copy_fields(text, delimiter, keep, between); });
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
    return csr_arrays(unlocked([&] { return cross(features, static_cast<Index>(rows), products); }));
}

}  // namespace

void bind_text(nb::module_& m) {
    bind_hashing(m);
    bind_lines(m);
    bind_scans(m);
    const auto count_letter = [](Text text, Letter letter) {
        return count_if(text, [letter](Letter c) { return c == letter; });
    };
    m.def("count_letter", count_letter, "text"_a, "letter"_a, Unlocked(),
          "Return how often a byte occurs, faster than bytes.count.");
    m.def("find_records", records_of, "text"_a, "delimiter"_a, "most"_a,
          "Return start, end, line and number of fields of the first records of CSV text.");
    m.def("last_record_end", last_record_end, "text"_a, "delimiter"_a, Unlocked(),
          "Return the end of the last record that ends with a line feed, 0 if there is none.");
    m.def("copy_fields", some_fields, "text"_a, "delimiter"_a, "keep"_a, "between"_a,
          "Return some fields of all records; None if a record has too few or too many.");
    m.def("cross", rows_with_products, "x"_a, "columns"_a, "pairs"_a, "bits"_a,
          "Return CSR arrays of x with the products of pairs of groups as further columns.");
}

}  // namespace robustfd
