//! Loads of web pages over simple links.

use cellbed_link::*;
use cellbed_tcp::*;
use cellbed_virtual::*;

fn stages(rate: u64) -> Vec<StageConfig> {
    let bottleneck = BottleneckConfig::new(Schedule::Constant(BitRate(rate)));
    let delay = DelayConfig::Fixed(Duration::from_millis(20));
    vec![
        bottleneck.with_queue(Discipline::Infinite).into(),
        delay.into(),
    ]
}

fn network(rate: u64) -> Network {
    Network::new(stages(rate), stages(rate))
}

/// Loads the page and tells the milliseconds.
fn load(rate: u64, mut page: PageLoad) -> f64 {
    network(rate).run(&mut page, Time::ZERO, Time::from_millis(600_000));
    page.finished().expect("the link carries all").as_nanos() as f64 / 1e6
}

fn page(protocol: HttpVersion, objects: &[PageObject]) -> PageLoad {
    PageLoad::new(protocol, objects, Tcp::default())
}

fn plain(protocol: HttpVersion, objects: &[PageObject]) -> PageLoad {
    let mut page = page(protocol, objects);
    page.handshake = None;
    page
}

const fn object(bytes: u64, parent: Option<usize>) -> PageObject {
    PageObject { bytes, parent }
}

const FAT: u64 = 100_000_000_000;

#[test]
fn a_page_of_one_object_is_a_download() {
    let mut downloads = Downloads::new(&[300_300], Tcp::default());
    downloads.request = 500;
    network(20_000_000).run(&mut downloads, Time::ZERO, Time::from_millis(60_000));
    let taken = downloads.results()[0].taken().unwrap().as_nanos() as f64 / 1e6;
    assert_eq!(
        load(
            20_000_000,
            plain(HttpVersion::Http1, &[object(300_000, None)])
        ),
        taken
    );
    let framed = load(
        20_000_000,
        plain(HttpVersion::Http2, &[object(300_000, None)]),
    );
    assert!((framed - taken).abs() < 1.0, "{framed} {taken}"); // headers
}

#[test]
fn tls_is_one_more_round_trip_and_each_level_of_the_page_another() {
    let levels = [
        object(1000, None),
        object(1000, Some(0)),
        object(1000, Some(1)),
    ];
    for protocol in [HttpVersion::Http1, HttpVersion::Http2] {
        for (count, expected) in [(1, 2.0), (2, 3.0), (3, 4.0)] {
            let without = load(FAT, plain(protocol, &levels[..count]));
            let with = load(FAT, page(protocol, &levels[..count]));
            assert!((without - 40.0 * expected).abs() < 0.1, "{without}");
            assert!((with - without - 40.0).abs() < 0.1, "{with}");
        }
    }
}

#[test]
fn http1_fetches_six_at_a_time_and_http2_all_at_once() {
    let mut objects = vec![object(500, None)];
    objects.extend([object(500, Some(0)); 13]);
    // Handshake and document: 80 ms. One connection is open, the others take a round trip more.
    // It fetches at 80, 120, 160, 200, the other five at 120, 160: 3 + 5 · 2 = 13 have come after 200 ms.
    let one = load(FAT, plain(HttpVersion::Http1, &objects));
    assert!((one - 200.0).abs() < 0.1, "{one}");
    objects.push(object(500, Some(0)));
    let one = load(FAT, plain(HttpVersion::Http1, &objects));
    assert!((one - 240.0).abs() < 0.1, "{one}");
    let two = load(FAT, plain(HttpVersion::Http2, &objects));
    assert!((two - 120.0).abs() < 0.1, "{two}");
}

#[test]
fn on_http2_objects_take_turns_and_on_http1_they_share_the_link() {
    let objects = [
        object(1000, None),
        object(1_000_000, Some(0)),
        object(50_000, Some(0)),
        object(1_000_000, Some(0)),
    ];
    for protocol in [HttpVersion::Http1, HttpVersion::Http2] {
        let mut page = page(protocol, &objects);
        network(20_000_000).run(&mut page, Time::ZERO, Time::from_millis(60_000));
        let arrived: Vec<_> = page
            .fetches()
            .iter()
            .map(|it| it.arrived.unwrap())
            .collect();
        assert!(
            arrived[2] < arrived[1] && arrived[2] < arrived[3],
            "{protocol:?}: {arrived:?}"
        );
        // The link carries 2 MB and headers in 0.85 s; the rest is handshakes and slow start.
        let last = page.finished().unwrap();
        assert!(last < Time::from_millis(1250), "{protocol:?}: {last}");
    }
}

#[test]
fn a_browser_that_computes_asks_later() {
    let objects = [object(1000, None), object(1000, Some(0))];
    let mut slow = plain(HttpVersion::Http2, &objects);
    slow.processing = Duration::from_millis(30);
    let taken = load(FAT, slow);
    assert!((taken - 150.0).abs() < 0.1, "{taken}");
}
