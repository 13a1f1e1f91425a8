#include "categories.hpp"

#include <algorithm>

namespace robustfd {

void hash_values(Span<const Letter> prefix, const Letter* text, Span<const Index> ends, int bits, Index* columns,
                 double* signs) {
    std::vector<Letter> name(prefix.begin(), prefix.end());
    for (std::size_t k = 0; k + 1 < ends.size(); ++k) {
        name.resize(prefix.size());
        name.insert(name.end(), text + ends[k], text + ends[k + 1]);
        const HashedName hashed = hash_name(name.data(), name.data() + name.size(), bits);
        columns[k] = hashed.column;
        signs[k] = hashed.sign;
    }
}

CsrMatrix table_rows(Matrix<const double> numbers, const Categories& values) {
    const Index n = numbers.rows, width = numbers.cols;
    CsrMatrix rows(static_cast<std::size_t>(n) * static_cast<std::size_t>(width + values.codes.rows));
    for (Index i = 0; i < n; ++i) {
        for (Index j = 0; j < width; ++j)
            if (numbers(i, j) != 0.0) rows.add(j, numbers(i, j));
        for (Index t = 0; t < values.codes.rows; ++t) {
            const Index code = values.codes(t, i), place = values.bases[t] + code;
            if (code >= 0) rows.add(values.columns[place], values.signs[place]);
        }
        rows.settle();
        rows.end_row();
    }
    return rows;
}

}  // namespace robustfd
