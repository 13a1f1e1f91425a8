#include "vw.hpp"

#include "entries.hpp"

namespace robustfd {

namespace {

constexpr Dialect VW = Dialect::vw;

// The part of a line before the first bar.
struct Head {
    double label = std::nan(""), weight = 1.0;
    const Letter *tag = nullptr, *tag_end = nullptr;
};

// Read a number of the head: the label, the importance or the base.
Problem read_head_number(const Letter* p, const Letter* word_end, int place, Head& head) {
    double value = 0.0;
    if (read_number(p, value) != word_end || place > 2) return Problem::no_label;
    if (place == 2) return value == 0.0 ? Problem::none : Problem::has_base;
    if (place == 1 && value < 0.0) return Problem::bad_weight;
    (place == 0 ? head.label : head.weight) = value;
    return std::isfinite(value) ? Problem::none : Problem::not_finite;
}

// Read up to the first bar.
Problem read_head(const Letter*& p, Head& head) {
    for (int place = 0;; ++place) {
        const Letter* const begin = p = past_blanks(p);
        if (*p == '|') return Problem::none;
        while (!ends_token<VW>(*p)) ++p;
        const Letter *const word_end = p, *const after = past_blanks(p);
        if (*after == '\n') return Problem::no_bar;
        if (*after == '|' && (after == word_end || *begin == '\'')) {  // a tag touches the bar or starts with a quote
            head.tag = begin + (*begin == '\'');
            head.tag_end = word_end;
            p = after;
            return Problem::none;
        }
        if (Problem problem = read_head_number(begin, word_end, place, head); problem != Problem::none) return problem;
    }
}

// Some entries of a row, and the first letter and the hash of their namespace.
struct Segment {
    std::size_t begin, end;
    Letter letter;
    std::uint32_t hash;
};

bool belongs(const Segment& segment, const Group& group) {
    if (group.letter == ANY_SPACE) return true;
    return group.letter == segment.letter && (group.hash < 0 || group.hash == static_cast<Index>(segment.hash));
}

// Read the name and the weight of a namespace, after its bar.
Problem read_space(const Letter*& p, Space& space, Segment& segment) {
    const Letter* const begin = p;
    while (!ends_name<VW>(*p)) ++p;
    space.named = p > begin;
    if (space.named) space.seed = murmur3(begin, p, 0);
    segment.letter = space.named ? *begin : ' ';
    segment.hash = space.seed;
    if (*p != ':') return ends_token<VW>(*p) ? Problem::none : Problem::no_space;
    if (!space.named) return Problem::no_space;
    const Letter* after = read_number(p + 1, space.weight);
    if (!after || !ends_token<VW>(*after)) return Problem::no_value;
    p = after;
    return std::isfinite(space.weight) ? Problem::none : Problem::not_finite;
}

// Read the namespaces of a line.
Problem read_spaces(const Letter*& p, const ParseOptions& o, Parsed& parsed, std::vector<Segment>& segments) {
    segments.clear();
    while (*p == '|') {
        Space space;
        Segment segment{parsed.rows.entries(), 0, 0, 0};
        Problem problem = read_space(++p, space, segment);
        if (problem == Problem::none) problem = read_entries<VW>(p, o, space, parsed);
        if (problem != Problem::none) return problem;
        segment.end = parsed.rows.entries();
        segments.push_back(segment);
    }
    return Problem::none;
}

Problem read_line(const Letter*& p, const ParseOptions& o, Head& head, Parsed& parsed, std::vector<Segment>& segments) {
    p = past_blanks(p);
    if (*p == '\n') return Problem::blank;
    if (Problem problem = read_head(p, head); problem != Problem::none) return problem;
    if (o.labelled && std::isnan(head.label)) return Problem::unlabelled;
    return read_spaces(p, o, parsed, segments);
}

// Copy the entries of a line to the groups that they belong to.
void add_parts(const Parsed& parsed, const std::vector<Segment>& segments, Span<const Group> groups,
               std::vector<CsrMatrix>& parts) {
    for (std::size_t g = 0; g < groups.size(); ++g)
        for (const Segment& segment : segments)
            for (std::size_t k = segment.begin; belongs(segment, groups[g]) && k < segment.end; ++k)
                parts[g].add(parsed.rows.columns()[k], parsed.rows.values()[k]);
}

// End the row of each part, or forget it.
void end_parts(std::vector<CsrMatrix>& parts, bool is_row) {
    for (CsrMatrix& part : parts) {
        if (!is_row) {
            part.drop_row();
            continue;
        }
        part.settle();
        part.end_row();
    }
}

}  // namespace

ParsedVw parse_vw(Text text, const ParseOptions& options, Span<const Group> groups) {
    require_lines(text);
    ParsedVw parsed(most_entries(text, MARK<VW>));
    for (std::size_t g = 0; g < groups.size(); ++g) parsed.parts.emplace_back(0);
    std::vector<Segment> segments;
    const Letter *p = text.data(), *const begin = p, *const end = p + text.size();
    for (Index line = 0; p < end; ++line) {
        const Index start = p - begin, dropped = parsed.dropped;
        Head head;
        const Problem problem = read_line(p, options, head, parsed, segments);
        if (problem == Problem::none) add_parts(parsed, segments, groups, parsed.parts);
        const bool is_row = end_line(parsed, {start, line, problem}, dropped);
        end_parts(parsed.parts, is_row);
        if (is_row) {
            parsed.labels.push_back(head.label);
            parsed.weights.push_back(head.weight);
            for (const Letter* each : {head.tag, head.tag_end}) parsed.tags.push_back(each ? each - begin : 0);
        }
        p = past_line(p);
    }
    return parsed;
}

}  // namespace robustfd
