//! Lower convex hulls of points added one by one, and lines between two hulls.

/// Number of points beyond the hull's at which points above the hull are removed.
const SLACK: usize = 4096;

/// Maximum relative drift. Quartzes differ less, but a server's clock may be disciplined: NTP slews by up to 500 ppm.
const LARGEST_SLOPE: f64 = 2e-3;

/// Resolution of time stamps, ns.
const RESOLUTION: f64 = 1e3;

/// Maximum rounds until the scale of each direction's queueing settles.
const ROUNDS: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    x: f64,
    y: f64,
}

/// The points of a lower convex hull, and some that may be above it.
#[derive(Clone, Debug, Default)]
pub struct Hull {
    points: Vec<Point>,
    /// Number of points after the last computation of the hull.
    kept: usize,
    /// Number of all added points.
    count: f64,
    sum: (f64, f64),
}

impl Hull {
    pub fn add(&mut self, x: f64, y: f64) {
        self.count += 1.0;
        self.sum = (self.sum.0 + x, self.sum.1 + y);
        self.points.push(Point { x, y });
        if self.points.len() > 2 * self.kept + SLACK {
            self.points = lower_hull(std::mem::take(&mut self.points));
            self.kept = self.points.len();
        }
    }

    /// Return the hull's points, from left to right.
    fn points(&self) -> Vec<Point> {
        lower_hull(self.points.clone())
    }

    /// Return the mean height of all points above the line with slope `slope` that touches the hull from below;
    /// minimum: the resolution of stamps.
    fn mean_excess(&self, points: &[Point], slope: f64) -> f64 {
        let mean = (self.sum.1 - slope * self.sum.0) / self.count;
        (mean - least(points, |point| point.y - slope * point.x)).max(RESOLUTION)
    }
}

/// Lower half of Andrew's monotone chain ("Another efficient algorithm for convex hulls in two dimensions", 1979).
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

/// A line between two hulls.
#[derive(Clone, Copy, Debug)]
pub struct Strip {
    pub slope: f64,
    /// Height at x = 0.
    pub middle: f64,
    /// Maximum vertical distance to another line between the hulls, from the first to the last point.
    pub uncertainty: f64,
}

/// Return the strip between the upper and the lower points, the latter `mirrored`; `None` if either set is empty.
///
/// The slope is the most likely one for delays exponential above their minimum in each direction. If no line separates
/// the points, the clocks do not differ by a line: then return the least wrong line, with its error as uncertainty.
pub fn strip(above_hull: &Hull, mirrored_hull: &Hull) -> Option<Strip> {
    let (above, mirrored) = (above_hull.points(), mirrored_hull.points());
    let (first, last) = ends(&above, &mirrored)?;
    // Heights at x = 0 between which a line of this slope separates the points.
    let highest = |slope: f64| least(&above, |point| point.y - slope * point.x);
    let lowest = |slope: f64| -least(&mirrored, |point| point.y + slope * point.x);
    let width = |slope: f64| highest(slope) - lowest(slope);
    let single = |slope: f64| Strip {
        slope,
        middle: (highest(slope) + lowest(slope)) / 2.0,
        uncertainty: width(slope).abs() / 2.0,
    };
    if first == last {
        return Some(single(0.0));
    }
    let widest = peak(-LARGEST_SLOPE, LARGEST_SLOPE, width);
    if width(widest) < 0.0 {
        return Some(single(widest));
    }
    // All separating lines have slopes from `flattest` to `steepest`; on both sides of its peak, the width falls to 0.
    let steepest = crossing(widest, LARGEST_SLOPE, width);
    let flattest = crossing(widest, -LARGEST_SLOPE, width);
    let mut slope = widest;
    for _ in 0..ROUNDS {
        let weight_above = above_hull.count / above_hull.mean_excess(&above, slope);
        let weight_below = mirrored_hull.count / mirrored_hull.mean_excess(&mirrored, -slope);
        // With the scales of the previous round, the likelihood is concave.
        slope = peak(flattest, steepest, |slope| {
            -weight_above * above_hull.mean_excess(&above, slope)
                - weight_below * mirrored_hull.mean_excess(&mirrored, -slope)
        });
    }
    let middle = (highest(slope) + lowest(slope)) / 2.0;
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
        .fold(width(slope) / 2.0, f64::max);
    Some(Strip {
        slope,
        middle,
        uncertainty,
    })
}

fn ends(above: &[Point], mirrored: &[Point]) -> Option<(f64, f64)> {
    let first = above.first()?.x.min(mirrored.first()?.x);
    let last = above.last()?.x.max(mirrored.last()?.x);
    Some((first, last))
}

fn least(points: &[Point], height: impl Fn(&Point) -> f64) -> f64 {
    points.iter().map(height).fold(f64::INFINITY, f64::min)
}

/// Return the position of a concave function's maximum between two bounds, by ternary search.
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

/// Return the zero of a function that falls from `inside`, where it is not negative, to `outside`. Return `outside` if
/// there is no zero.
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
