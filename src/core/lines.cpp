// Rows of LIBSVM and of Vowpal Wabbit text: after a label, features feature:value, separated by blanks.
#include "lines.hpp"

namespace robustfd {

namespace {

// ---------------------------------------------------------------------------------------------------- LIBSVM

Problem read_libsvm_label(const Letter*& p, double& label) {
    const Letter* after = read_number(p, label);
    if (!after || !ends_token<LIBSVM>(*after)) return Problem::no_label;
    p = after;
    return std::isfinite(label) ? Problem::none : Problem::not_finite;
}

Problem read_libsvm_line(const Letter*& p, const ParseOptions& o, double& label, Parsed& parsed) {
    p = past_blanks(p);
    if (*p == '\n' || *p == MARK<LIBSVM>) return Problem::blank;
    if (o.labelled)
        if (Problem problem = read_libsvm_label(p, label); problem != Problem::none) return problem;
    return read_entries<LIBSVM>(p, o, Space{}, parsed.rows, parsed.dropped);
}

// --------------------------------------------------------------------------------------------- Vowpal Wabbit

// Read a number of the head: the label, the importance or the base.
Problem read_head_number(const Letter* p, const Letter* word_end, int place, Head& head) {
    double value = 0.0;
    if (read_number(p, value) != word_end || place > 2) return Problem::no_label;
    if (place == 2) return value == 0.0 ? Problem::none : Problem::has_base;
    if (place == 1 && value < 0.0) return Problem::bad_weight;
    (place == 0 ? head.label : head.weight) = value;
    return std::isfinite(value) ? Problem::none : Problem::not_finite;
}

bool belongs(const Segment& segment, const Group& group) {
    if (group.letter == ANY_SPACE) return true;
    return group.letter == segment.letter && (group.hash < 0 || group.hash == static_cast<Index>(segment.hash));
}

Problem read_vw_line(const Letter*& p, const ParseOptions& o, Head& head, Parsed& parsed,
                     std::vector<Segment>& segments) {
    p = past_blanks(p);
    if (*p == '\n') return Problem::blank;
    if (Problem problem = read_head(p, head, read_head_number); problem != Problem::none) return problem;
    if (o.labelled && std::isnan(head.label)) return Problem::unlabelled;
    return read_spaces(p, o, parsed.rows, parsed.dropped, segments);
}

// Copy the entries of a line to a group, if they belong to it.
void add_segments(const CsrMatrix& rows, const std::vector<Segment>& segments, const Group& group, CsrMatrix& out) {
    for (const Segment& segment : segments)
        for (std::size_t k = segment.begin; belongs(segment, group) && k < segment.end; ++k)
            out.add(rows.columns()[k], rows.values()[k]);
}

}  // namespace

Parsed parse_libsvm(Text text, const ParseOptions& options) {
    Parsed parsed = room_for<LIBSVM>(text);
    double label = 0.0;
    const auto read_line = [&](const Letter*& p) { return read_libsvm_line(p, options, label, parsed); };
    parse_lines(text, parsed, read_line, [&](bool is_row) {
        if (is_row && options.labelled) parsed.labels.push_back(label);
    });
    return parsed;
}

Parsed parse_vw(Text text, const ParseOptions& options, Span<const Group> groups) {
    Parsed parsed = room_for<VW>(text);
    for (std::size_t g = 0; g < groups.size(); ++g) parsed.groups.emplace_back(0);
    std::vector<Segment> segments;
    Head head;
    const auto read_line = [&](const Letter*& p) {
        head = {};
        const Problem problem = read_vw_line(p, options, head, parsed, segments);
        for (std::size_t g = 0; problem == Problem::none && g < groups.size(); ++g)
            add_segments(parsed.rows, segments, groups[g], parsed.groups[g]);
        return problem;
    };
    parse_lines(text, parsed, read_line, [&](bool is_row) {
        for (CsrMatrix& group : parsed.groups) is_row ? group.end_row() : group.drop_row();
        if (!is_row) return;
        parsed.labels.push_back(head.label);
        parsed.weights.push_back(head.weight);
        for (const Letter* each : {head.tag, head.tag_end}) parsed.tags.push_back(each ? each - text.data() : 0);
    });
    return parsed;
}

}  // namespace robustfd
