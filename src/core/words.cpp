#include "words.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_set>

namespace robustfd {

namespace {

constexpr std::size_t FEW = 8;   // words of a value that is also a feature as a whole
constexpr double OF_PAIR = 0.5;  // pairs are many, and should learn more slowly than words

bool is_space(Letter c) { return c == ' ' || ('\t' <= c && c <= '\r'); }

const Letter* past_spaces(const Letter* p, const Letter* end) { return std::find_if_not(p, end, is_space); }
const Letter* past_word(const Letter* p, const Letter* end) { return std::find_if(p, end, is_space); }

bool has_many_words(Text value) {
    const Letter *p = value.data(), *const end = p + value.size();
    return past_spaces(past_word(past_spaces(p, end), end), end) < end;
}

// Whether so many bytes are a mark that may enclose or end a word. Signs that change its meaning, as in -5, 50% or C#,
// are none.
bool is_mark(const Letter* p, std::ptrdiff_t bytes) {
    if (bytes == 1) return *p && std::string_view(".,;:!?()[]{}<>\"'`*~_").find(*p) != std::string_view::npos;
    if (bytes == 2)  // no-break space, and marks of Spanish and French
        return p[0] == 0xC2 && (p[1] == 0xA0 || p[1] == 0xA1 || p[1] == 0xAB || p[1] == 0xBB || p[1] == 0xBF);
    return p[0] == 0xE2 && p[1] == 0x80 && 0x90 <= p[2] && p[2] <= 0xA7;  // dashes, quotes and dots
}

// The bytes of the mark at the start, or at the end, of a word; 0 if there is none.
std::ptrdiff_t mark_of(const Letter* begin, const Letter* end, bool at_end) {
    for (std::ptrdiff_t bytes = 1; bytes <= 3 && bytes <= end - begin; ++bytes)
        if (is_mark(at_end ? end - bytes : begin, bytes)) return bytes;
    return 0;
}

// A Latin, Greek or Cyrillic letter from U+00C0 on as a lower-case one.
unsigned lower_case(unsigned c) {
    const auto within = [c](unsigned first, unsigned last) { return first <= c && c <= last; };
    if ((within(0xC0, 0xDE) && c != 0xD7) || (within(0x391, 0x3A9) && c != 0x3A2) || within(0x410, 0x42F))
        return c + 32;
    if (within(0x400, 0x40F)) return c + 80;
    if ((within(0x100, 0x137) && c != 0x130) || within(0x14A, 0x177)) return c | 1;
    if (within(0x139, 0x148) || within(0x179, 0x17E)) return c + (c & 1);
    return c == 0x178 ? 0xFF : c;
}

void make_lower_case(Letter* p, const Letter* end) {
    for (; p < end; ++p) {
        if (static_cast<Letter>(*p - 'A') < 26) {
            *p |= 32;
        } else if (0xC3 <= *p && *p <= 0xD0 && p + 1 < end && p[1] >> 6 == 2) {
            const unsigned lower = lower_case((*p & 0x1Fu) << 6 | (p[1] & 0x3Fu));
            *p++ = static_cast<Letter>(0xC0 | lower >> 6);
            *p = static_cast<Letter>(0x80 | (lower & 0x3F));
        }
    }
}

}  // namespace

const std::vector<Term>& Terms::of(Text value) {
    terms_.clear();
    if (!has_many_words(value)) {
        terms_.push_back({value, 1.0});
        return terms_;
    }
    words_.clear();
    ends_.clear();
    const Letter *p = value.data(), *const end = p + value.size();
    while ((p = past_spaces(p, end)) < end) {
        const Letter* const start = p;
        p = past_word(p, end);
        const Letter *first = start, *last = p;
        while (const std::ptrdiff_t bytes = mark_of(first, last, false)) first += bytes;
        while (const std::ptrdiff_t bytes = mark_of(first, last, true)) last -= bytes;
        if (!words_.empty()) words_.push_back(' ');
        if (first < last)
            words_.insert(words_.end(), first, last);
        else
            words_.insert(words_.end(), start, p);  // nothing but marks, such as :)
        ends_.push_back(words_.size());
    }
    make_lower_case(words_.data(), words_.data() + words_.size());

    std::unordered_set<std::string_view> known(4 * ends_.size());
    const auto add = [&](Text name, double number) {
        if (known.emplace(reinterpret_cast<const char*>(name.data()), name.size()).second)
            terms_.push_back({name, number});
    };
    const auto add_words = [&](std::size_t count, double number) {  // all that are so many in a row
        for (std::size_t k = count - 1; k < ends_.size(); ++k) {
            const std::size_t begin = k < count ? 0 : ends_[k - count] + 1;
            add({words_.data() + begin, ends_[k] - begin}, number);
        }
    };
    if (ends_.size() <= FEW) add(value, 1.0);
    add_words(1, 1.0);
    add_words(2, OF_PAIR);
    return terms_;
}

HashedValues hash_values(Text prefix, Text text, Span<const Index> ends, int bits) {
    HashedValues found;
    Terms terms;
    std::vector<Letter> name(prefix.begin(), prefix.end());
    for (std::size_t k = 0; k + 1 < ends.size(); ++k) {
        for (const Term& term : terms.of({text.data() + ends[k], static_cast<std::size_t>(ends[k + 1] - ends[k])})) {
            name.resize(prefix.size());
            name.insert(name.end(), term.name.begin(), term.name.end());
            const HashedName hashed = hash_name(name, bits);
            found.columns.push_back(hashed.column);
            found.values.push_back(hashed.sign * term.value);
        }
        found.starts.push_back(static_cast<Index>(found.columns.size()));
    }
    return found;
}

}  // namespace robustfd
