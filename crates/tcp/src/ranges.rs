//! Sets of offsets, as spans.

/// Disjoint spans of offsets, in order; adjacent spans are merged.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges {
    spans: Vec<(u64, u64)>,
}

impl Ranges {
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Return the span that contains `offset`.
    pub fn around(&self, offset: u64) -> Option<(u64, u64)> {
        let index = self.spans.partition_point(|&(_, end)| end <= offset);
        let span = *self.spans.get(index)?;
        (span.0 <= offset).then_some(span)
    }

    /// Add a span, and call `fresh` with each of its new parts.
    pub fn insert(&mut self, start: u64, end: u64, mut fresh: impl FnMut(u64, u64)) {
        if start >= end {
            return;
        }
        let first = self.spans.partition_point(|&(_, other)| other < start);
        let (mut last, mut gap_start, mut whole) = (first, start, (start, end));
        while let Some(&(from, to)) = self.spans.get(last).filter(|&&(from, _)| from <= end) {
            if gap_start < from {
                fresh(gap_start, from);
            }
            gap_start = gap_start.max(to);
            whole = (whole.0.min(from), whole.1.max(to));
            last += 1;
        }
        if gap_start < end {
            fresh(gap_start, end);
        }
        match self.spans.get_mut(first) {
            Some(span) if last == first + 1 => *span = whole, // by far the most frequent case
            _ => drop(self.spans.splice(first..last, [whole])),
        }
    }

    /// Remove all offsets before `offset`.
    pub fn forget_before(&mut self, offset: u64) {
        let gone = self.spans.partition_point(|&(_, end)| end <= offset);
        self.spans.drain(..gone);
        if let Some(first) = self.spans.first_mut() {
            first.0 = first.0.max(offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(ranges: &mut Ranges, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut added = Vec::new();
        ranges.insert(start, end, |from, to| added.push((from, to)));
        added
    }

    #[test]
    fn new_parts_are_reported_once_and_neighbours_join() {
        let mut ranges = Ranges::default();
        assert_eq!(fresh(&mut ranges, 10, 20), [(10, 20)]);
        assert_eq!(fresh(&mut ranges, 40, 50), [(40, 50)]);
        assert_eq!(fresh(&mut ranges, 15, 45), [(20, 40)]);
        assert_eq!(fresh(&mut ranges, 10, 50), []);
        assert_eq!(ranges.spans, [(10, 50)]);
        assert_eq!(fresh(&mut ranges, 50, 60), [(50, 60)]);
        assert_eq!(fresh(&mut ranges, 0, 5), [(0, 5)]);
        assert_eq!(fresh(&mut ranges, 0, 70), [(5, 10), (60, 70)]);
        ranges.forget_before(65);
        assert_eq!(ranges.around(65), Some((65, 70)));
        assert_eq!(ranges.around(64), None);
        ranges.forget_before(70);
        assert!(ranges.is_empty());
    }
}
