"""A series being edited: lazily read rows, and their duration.

Which row a span has: an opportunity is at the end of the time in which its bytes accumulate, so a span from `a` to
`b` has those after `a` and up to `b`, and the one at 0 belongs to the span that starts there; a rate holds from its row
on, so a span has the rate at `a`; a round trip belongs to its send time, from `a` to before `b`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from cellbed.archive.series import Content, Series

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class Timeline:
    """Rows of a content (:mod:`cellbed.archive.series`) over `duration` ns. size: how many rows there are at most."""

    content: Content
    rows: pl.LazyFrame
    duration: int
    size: int = 0

    def cut(self, start: int, end: int) -> Timeline:
        """Return the rows from `start` to `end`, ns, with times from 0 on."""
        import polars as pl

        at = pl.col("at_ns")
        match self.content:
            case Content.OPPORTUNITIES:
                after = at >= 0 if start == 0 else at > start
                rows = self.rows.filter(after & (at <= end)).with_columns(at - start)
            case Content.ROUND_TRIP:
                rows = self.rows.filter((at >= start) & (at < end)).with_columns(at - start)
            case Content.RATE:
                held = self.rows.filter(at <= start).last()
                rows = pl.concat([held, self.rows.filter((at > start) & (at < end))]).with_columns(
                    pl.max_horizontal(at - start, 0)
                )
        return replace(self, rows=rows, duration=end - start)

    def then(self, other: Timeline) -> Timeline:
        """This, and then `other`, which has the same content."""
        import polars as pl

        later = other.rows.with_columns(pl.col("at_ns") + self.duration)
        duration, size = self.duration + other.duration, self.size + other.size
        return replace(self, rows=pl.concat([self.rows, later]), duration=duration, size=size)

    def repeated(self, until: int) -> Timeline:
        """This repeated, until `until` ns."""
        import polars as pl

        rounds = -(-until // self.duration)
        each = [self.rows.with_columns(pl.col("at_ns") + number * self.duration) for number in range(rounds)]
        whole = replace(self, rows=pl.concat(each), duration=rounds * self.duration, size=rounds * self.size)
        return whole if whole.duration == until else whole.cut(0, until)

    def scaled(self, factor: Fraction) -> Timeline:
        """Rates, or round-trip times, times `factor`; the same moments.

        Of opportunities the one numbered i (from 0) becomes ⌊(i+1) f⌋ − ⌊i f⌋: the count up to any moment is right to
        within one.
        """
        import polars as pl

        match self.content:
            case Content.RATE:
                return replace(self, rows=self.rows.with_columns(pl.col("bit_s") * float(factor)))
            case Content.ROUND_TRIP:
                trip = (pl.col("round_trip_ns") * float(factor)).round().cast(pl.Int64)
                return replace(self, rows=self.rows.with_columns(trip))
            case Content.OPPORTUNITIES:
                above, below = factor.numerator, factor.denominator
                number = pl.int_range(pl.len(), dtype=pl.Int64)
                copies = (number + 1) * above // below - number * above // below
                rows = self.rows.select("at_ns", copies=copies)
                return replace(self, rows=_repeated_rows(rows, pl.col("copies")), size=int(self.size * factor) + 1)

    def stretched(self, factor: Fraction) -> Timeline:
        """Return the same rows with their times, and the duration, times `factor`: of opportunities the rate falls by
        it."""
        import polars as pl

        at = pl.col("at_ns") * factor.numerator // factor.denominator
        return replace(self, rows=self.rows.with_columns(at), duration=max(1, int(self.duration * factor)))

    def without(self, start: int, end: int) -> Timeline:
        """Return an outage: no opportunities, rate or answers from `start` to `end`, ns. Later rows keep their
        times."""
        import polars as pl

        at = pl.col("at_ns")
        match self.content:
            case Content.OPPORTUNITIES:
                return replace(self, rows=self.rows.filter(~((at > start) & (at <= end))))
            case Content.ROUND_TRIP:
                out = (at >= start) & (at < end)
                trip = pl.when(out).then(None).otherwise(pl.col("round_trip_ns")).alias("round_trip_ns")
                return replace(self, rows=self.rows.with_columns(trip))
            case Content.RATE:
                end = min(end, self.duration)
                resumed = self.rows.filter(at <= end).last().with_columns(at_ns=pl.lit(end, pl.Int64))
                silent = pl.LazyFrame(
                    {"at_ns": [start], "bit_s": [0.0]}, schema={"at_ns": pl.Int64, "bit_s": pl.Float64}
                )
                rows = [self.rows.filter(at < start), silent]
                if end < self.duration:
                    rows += [resumed, self.rows.filter(at > end)]
                return replace(self, rows=pl.concat(rows))

    def resampled(self, width: int) -> Timeline:
        """Means over bins of `width` ns: rates; for round trips the median, lost if all were."""
        import polars as pl

        if self.content is Content.ROUND_TRIP:
            rows = (
                self.rows.group_by((pl.col("at_ns") // width * width).alias("at_ns"))
                .agg(pl.col("round_trip_ns").median().round().cast(pl.Int64))
                .sort("at_ns")
            )
            return replace(self, rows=rows, size=min(self.size, self.duration // width + 1))
        bits = self.bits(width).with_columns(
            bit_s=pl.col("bits") * 1e9 / pl.min_horizontal(width, self.duration - pl.col("at_ns"))
        )
        return Timeline(Content.RATE, bits.select("at_ns", "bit_s"), self.duration, self.duration // width + 1)

    def shared(self, share: Callable[[], pl.LazyFrame]) -> Timeline:
        """Return the part of one user. share: rows ``at_ns``, ``share`` (above 0, at most 1): from when which share.

        Opportunities are kept where the user's accumulated share passes a whole number, as by a round robin over single
        opportunities.
        """
        import polars as pl

        shares = share()
        if self.content is Content.RATE:
            times = pl.concat([self.rows.select("at_ns"), shares.select("at_ns")]).unique().sort("at_ns")
            rows = (
                times.join_asof(self.rows, on="at_ns")
                .join_asof(shares, on="at_ns")
                .select("at_ns", bit_s=pl.col("bit_s") * pl.col("share"))
                .filter(pl.col("at_ns") < self.duration)
            )
            return replace(self, rows=rows)
        if self.content is Content.ROUND_TRIP:
            return self
        summed = self.rows.join_asof(shares, on="at_ns").with_columns(summed=pl.col("share").cum_sum() + 1e-9)
        kept = summed.filter(pl.col("summed").floor() > (pl.col("summed") - pl.col("share")).floor())
        return replace(self, rows=kept.select("at_ns"))

    def plus(self, other: Timeline) -> Timeline:
        """Return the capacity of both together, for as long as the shorter one lasts."""
        import polars as pl

        duration = min(self.duration, other.duration)
        one, two = (each.cut(0, duration) if each.duration > duration else each for each in (self, other))
        if self.content is Content.OPPORTUNITIES:
            return replace(one, rows=one.rows.merge_sorted(two.rows, "at_ns"), size=one.size + two.size)
        times = pl.concat([one.rows.select("at_ns"), two.rows.select("at_ns")]).unique().sort("at_ns")
        both = times.join_asof(one.rows, on="at_ns").join_asof(two.rows.rename({"bit_s": "more"}), on="at_ns")
        summed = both.select("at_ns", bit_s=pl.col("bit_s").fill_null(0) + pl.col("more").fill_null(0))
        return replace(one, rows=summed, size=one.size + two.size)

    def bits(self, width: int) -> pl.LazyFrame:
        """Bits in each bin of `width` ns: ``at_ns`` (its start), ``bits``. Every bin is there. Not of round trips."""
        import polars as pl

        count = -(-self.duration // width)
        bins = pl.LazyFrame().select(at_ns=pl.int_range(count, dtype=pl.Int64) * width)
        if self.content is Content.OPPORTUNITIES:
            # An opportunity at the border closes the bin before it.
            which = pl.max_horizontal(pl.col("at_ns") - 1, 0) // width * width
            found = self.rows.group_by(which.alias("at_ns")).agg(bits=pl.len().cast(pl.Float64) * 12_000)
            return bins.join(found, on="at_ns", how="left").with_columns(pl.col("bits").fill_null(0.0)).sort("at_ns")
        # Bits up to each border: those up to the last row before it, and its rate since.
        ended = pl.col("at_ns").shift(-1, fill_value=self.duration)
        area = (pl.col("bit_s") * (ended - pl.col("at_ns")) / 1e9).cum_sum().shift(1, fill_value=0.0)
        rows = self.rows.with_columns(before=area, begun=pl.col("at_ns"))
        last = pl.LazyFrame({"at_ns": [self.duration]}, schema={"at_ns": pl.Int64})
        borders = pl.concat([bins, last]).join_asof(rows, on="at_ns")
        summed = (pl.col("before") + pl.col("bit_s") * (pl.col("at_ns") - pl.col("begun")) / 1e9).fill_null(0.0)
        return borders.select("at_ns", bits=summed.shift(-1) - summed).head(count)


def timeline(series: Series) -> Timeline:
    """Return the series as a timeline; further columns are left behind."""
    import polars as pl

    rows = series.scan().select(_COLUMNS[series.content])
    return Timeline(series.content, rows, series.duration_ns, rows.select(pl.len()).collect().item())


_COLUMNS = {
    Content.OPPORTUNITIES: ["at_ns"],
    Content.RATE: ["at_ns", "bit_s"],
    Content.ROUND_TRIP: ["at_ns", "round_trip_ns"],
}


def _repeated_rows(rows: pl.LazyFrame, copies: pl.Expr) -> pl.LazyFrame:
    import polars as pl

    return rows.filter(copies > 0).select(pl.col("at_ns").repeat_by(copies)).explode("at_ns")
