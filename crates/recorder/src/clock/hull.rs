//! Lower convex hulls of points that come one by one, and lines between two of them.

/// Points above the hull are sorted out when there are so many more than it has.
const SLACK: usize = 4096;

/// No quartz differs by more from another, but a server's clock may be disciplined hard: 500 ppm is what NTP may turn.
const LARGEST_SLOPE: f64 = 2e-3;

/// Strips whose widths differ by less, ns, are equally wide: stamps are no better.
const TOLERANCE: f64 = 100.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub x: f64,
    pub y: f64,
}

/// The points of a lower convex hull, and some that may be above it.
#[derive(Clone, Debug, Default)]
pub struct Hull {
    points: Vec<Point>,
    /// How many the hull had when it was last made.
    kept: usize,
}

impl Hull {
    pub fn add(&mut self, x: f64, y: f64) {
        self.points.push(Point { x, y });
        if self.points.len() > 2 * self.kept + SLACK {
            self.points = lower_hull(std::mem::take(&mut self.points));
            self.kept = self.points.len();
        }
    }

    /// The hull, from left to right.
    pub fn points(&self) -> Vec<Point> {
        lower_hull(self.points.clone())
    }
}

/// Andrew's monotone chain ("Another efficient algorithm for convex hulls in two dimensions", 1979), the lower half.
fn lower_hull(mut points: Vec<Point>) -> Vec<Point> {
    points.sort_by(|a, b| a.x.total_cmp(&b.x).then(a.y.total_cmp(&b.y)));
    let mut hull: Vec<Point> = Vec::new();
    for point in points {
        while let [.., a, b] = hull[..]
            && (b.x - a.x) * (point.y - a.y) <= (b.y - a.y) * (point.x - a.x)
        {
            hull.pop();
        }
        hull.push(point);
    }
    hull
}

/// The middle of the widest strip between two hulls.
#[derive(Clone, Copy, Debug)]
pub struct Strip {
    pub slope: f64,
    /// Height at x = 0.
    pub middle: f64,
    /// The largest vertical distance to a line that lies between the hulls, anywhere between the first and the last point.
    pub uncertainty: f64,
}

/// The strip between points `above` (a lower hull) and points below (a lower hull mirrored upside down, `mirrored`); `None` if either is
/// empty. Where the points leave no strip, the clocks do not differ by a line: it is the line that is least wrong, and as much is uncertain.
pub fn widest_strip(above: &[Point], mirrored: &[Point]) -> Option<Strip> {
    let (first, last) = ends(above, mirrored)?;
    // Heights at x = 0 between which a line of that slope has all points on their sides.
    let highest = |slope: f64| least(above, |point| point.y - slope * point.x);
    let lowest = |slope: f64| -least(mirrored, |point| point.y + slope * point.x);
    let width = |slope: f64| highest(slope) - lowest(slope);
    let slope = if first == last {
        0.0
    } else {
        least_slope(peak(-LARGEST_SLOPE, LARGEST_SLOPE, width), width)
    };
    let middle = (highest(slope) + lowest(slope)) / 2.0;
    let half = width(slope) / 2.0;
    if half < 0.0 || first == last {
        return Some(Strip {
            slope,
            middle,
            uncertainty: half.abs(),
        });
    }
    // All lines that fit have slopes from `flattest` to `steepest`; the width falls to zero on either side of its peak.
    let steepest = crossing(slope, LARGEST_SLOPE, width);
    let flattest = crossing(slope, -LARGEST_SLOPE, width);
    let uncertainty = [first, last]
        .iter()
        .flat_map(|x| {
            let here = middle + slope * x;
            let up = peak(flattest, steepest, |slope| highest(slope) + slope * x);
            let down = peak(flattest, steepest, |slope| -(lowest(slope) + slope * x));
            [
                highest(up) + up * x - here,
                here - (lowest(down) + down * x),
            ]
        })
        .fold(half, f64::max);
    Some(Strip {
        slope,
        middle,
        uncertainty,
    })
}

/// Of all slopes that leave the strip as wide as `widest` does, the one nearest to zero: where a queue never empties the points on one side
/// leave the choice, and clocks hardly drift.
fn least_slope(widest: f64, width: impl Fn(f64) -> f64) -> f64 {
    let enough = width(widest) - TOLERANCE;
    let reaches = |slope: f64| width(slope) - enough;
    if reaches(0.0) >= 0.0 {
        0.0
    } else {
        crossing(widest, 0.0, reaches)
    }
}

fn ends(above: &[Point], mirrored: &[Point]) -> Option<(f64, f64)> {
    let first = above.first()?.x.min(mirrored.first()?.x);
    let last = above.last()?.x.max(mirrored.last()?.x);
    Some((first, last))
}

fn least(points: &[Point], height: impl Fn(&Point) -> f64) -> f64 {
    points.iter().map(height).fold(f64::INFINITY, f64::min)
}

/// Where a concave function is largest between two bounds, by thirds.
fn peak(mut low: f64, mut high: f64, function: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..120 {
        let (left, right) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if function(left) < function(right) {
            low = left;
        } else {
            high = right;
        }
    }
    (low + high) / 2.0
}

/// Where a function that falls from `inside`, where it is not negative, towards `outside` reaches zero; `outside` if it does not.
fn crossing(mut inside: f64, mut outside: f64, function: impl Fn(f64) -> f64) -> f64 {
    if function(outside) >= 0.0 {
        return outside;
    }
    for _ in 0..80 {
        let middle = (inside + outside) / 2.0;
        if function(middle) >= 0.0 {
            inside = middle;
        } else {
            outside = middle;
        }
    }
    inside
}
