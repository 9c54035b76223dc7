//! Evidence: properties of a request, beside its texts, that help to classify its client.
//!
//! One number of bit-fields, the lowest bits first. In each field, 0 is what an edge without
//! evidence reports: unknown.
//!
//! ```text
//! bits   field       values
//! 0      recorded    1: the edge reports the fields below; a 0 in them then has their meaning
//! 1-3    site        Sec-Fetch-Site: 0 not sent, 1 none, 2 same-origin, 3 same-site,
//!                    4 cross-site, 7 other
//! 4-6    mode        Sec-Fetch-Mode: 0 not sent, 1 navigate, 2 same-origin, 3 no-cors, 4 cors,
//!                    5 websocket, 7 other
//! 7-9    destination Sec-Fetch-Dest: 0 not sent, 1 document, 2 a frame within a document, 3 empty,
//!                    4 image, 5 any other part of a document, 7 other
//! 10     user        1: Sec-Fetch-User is ?1
//! 11-13  accept      Accept: 0 not sent, 1 has HTML, 2 begins with an image, 3 has */*, 7 other
//! 14-16  protocol    0 unknown, 1 HTTP/1.0, 2 HTTP/1.1, 3 HTTP/2, 4 HTTP/3
//! 17     tls         1: the connection to the edge is encrypted
//! 18     truncated   1: the client's address was truncated at the edge
//! 19-30  reserved    stored as they are
//! ```

/// The bits that a reader preserves: a positive number in 32 bits with a sign, as databases have.
const PRESERVED: u64 = 0x7fff_ffff;

const RECORDED: u32 = 1;
const USER: u32 = 1 << 10;
const TLS: u32 = 1 << 17;
const TRUNCATED: u32 = 1 << 18;

/// The first bit of each field of three bits.
const SITE: u32 = 1;
const MODE: u32 = 4;
const DESTINATION: u32 = 7;
const ACCEPT: u32 = 11;
const PROTOCOL: u32 = 14;

/// The value of a field for a header that was sent with a value that has no number.
const OTHER: u32 = 7;

/// The bytes of `Accept` that are examined. Browsers name what they want first.
const MAX_ACCEPT: usize = 256;

/// The properties of a request: the input of [`VisitEvidence::of`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// The header `Sec-Fetch-Site`.
    pub site: Option<&'a [u8]>,
    /// The header `Sec-Fetch-Mode`.
    pub mode: Option<&'a [u8]>,
    /// The header `Sec-Fetch-Dest`.
    pub destination: Option<&'a [u8]>,
    /// The header `Sec-Fetch-User`.
    pub user: Option<&'a [u8]>,
    /// The header `Accept`.
    pub accept: Option<&'a [u8]>,
    /// The protocol's version.
    pub protocol: Protocol,
    /// The connection to the edge is encrypted.
    pub is_tls: bool,
    /// The address in the event is truncated.
    pub is_truncated: bool,
}

/// Version of HTTP between client and edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// None of the others.
    #[default]
    Unknown,
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
    /// HTTP/2.
    Http2,
    /// HTTP/3.
    Http3,
}

/// The way in which a browser made a request (`Sec-Fetch-Mode` and `Sec-Fetch-Dest`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// The client sent none of the headers `Sec-Fetch-Site`, `-Mode`, `-Dest` and `-User`.
    None,
    /// A navigation: a person or a program opened the address.
    Navigation,
    /// A page or a program fetched the address as a part of something, or in a script.
    Part,
    /// The headers do not decide between these.
    Other,
}

/// The kind of content that a client asks for (`Accept`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// The header was not sent.
    None,
    /// HTML, and possibly more.
    Html,
    /// An image first.
    Image,
    /// Anything, but not HTML by name.
    Any,
    /// Something else.
    Other,
}

/// Evidence of a visit, as one number. [`UNKNOWN`](Self::UNKNOWN) for a visit of an edge that reports none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VisitEvidence(u32);

impl VisitEvidence {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self(0);

    /// Collects the evidence of a request.
    #[must_use]
    pub fn of(request: &Request<'_>) -> Self {
        let mut bits = RECORDED;
        bits |= request.site.map_or(0, site) << SITE;
        bits |= request.mode.map_or(0, mode) << MODE;
        bits |= request.destination.map_or(0, destination) << DESTINATION;
        bits |= request.accept.map_or(0, accept) << ACCEPT;
        bits |= (request.protocol as u32) << PROTOCOL;
        for (bit, is_set) in [
            (USER, request.user == Some(b"?1")),
            (TLS, request.is_tls),
            (TRUNCATED, request.is_truncated),
        ] {
            if is_set {
                bits |= bit;
            }
        }
        Self(bits)
    }

    /// The evidence that a number stands for. Bits beyond the format are dropped.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self((number & PRESERVED) as u32)
    }

    /// The number: 0 if nothing is known, at most 2³¹ − 1.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Reports whether an edge has recorded evidence. If not, all other methods report nothing.
    #[must_use]
    pub const fn is_recorded(self) -> bool {
        self.0 & RECORDED != 0
    }

    /// Reports whether the connection to the edge was encrypted.
    #[must_use]
    pub const fn is_tls(self) -> bool {
        self.0 & TLS != 0
    }

    /// Reports whether the client's address was truncated at the edge.
    #[must_use]
    pub const fn is_truncated(self) -> bool {
        self.0 & TRUNCATED != 0
    }

    /// The way in which the request was made; `None` if no evidence was recorded.
    #[must_use]
    pub fn fetch(self) -> Option<Fetch> {
        let fields = [SITE, MODE, DESTINATION].map(|field| self.field(field));
        self.is_recorded().then_some(match fields {
            [0, 0, 0] if self.0 & USER == 0 => Fetch::None,
            // Downloads are navigations whose destination is empty.
            [_, 1, _] | [_, 0, 1 | 2] => Fetch::Navigation,
            [_, 2..=5, _] | [_, 0, 3..=5] => Fetch::Part,
            _ => Fetch::Other,
        })
    }

    /// The kind of content that the client asked for; `None` if no evidence was recorded.
    #[must_use]
    pub fn accept(self) -> Option<Accept> {
        self.is_recorded().then(|| match self.field(ACCEPT) {
            0 => Accept::None,
            1 => Accept::Html,
            2 => Accept::Image,
            3 => Accept::Any,
            _ => Accept::Other,
        })
    }

    /// The version of HTTP.
    #[must_use]
    pub fn protocol(self) -> Protocol {
        match self.field(PROTOCOL) {
            1 => Protocol::Http10,
            2 => Protocol::Http11,
            3 => Protocol::Http2,
            4 => Protocol::Http3,
            _ => Protocol::Unknown,
        }
    }

    const fn field(self, first: u32) -> u32 {
        self.0 >> first & 7
    }
}

fn site(value: &[u8]) -> u32 {
    match value {
        b"none" => 1,
        b"same-origin" => 2,
        b"same-site" => 3,
        b"cross-site" => 4,
        _ => OTHER,
    }
}

fn mode(value: &[u8]) -> u32 {
    match value {
        b"navigate" => 1,
        b"same-origin" => 2,
        b"no-cors" => 3,
        b"cors" => 4,
        b"websocket" => 5,
        _ => OTHER,
    }
}

/// The destinations are those of the Fetch standard.
fn destination(value: &[u8]) -> u32 {
    match value {
        b"document" => 1,
        b"iframe" | b"frame" | b"fencedframe" | b"object" | b"embed" => 2,
        b"empty" => 3,
        b"image" => 4,
        b"audio" | b"audioworklet" | b"font" | b"json" | b"manifest" | b"paintworklet"
        | b"report" | b"script" | b"serviceworker" | b"sharedworker" | b"style" | b"text"
        | b"track" | b"video" | b"webidentity" | b"worker" | b"xslt" => 5,
        _ => OTHER,
    }
}

fn accept(value: &[u8]) -> u32 {
    let value = &value[..value.len().min(MAX_ACCEPT)];
    let begins = |word: &[u8]| {
        let start = value.get(..word.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(word))
    };
    let has = |word: &[u8]| {
        let mut places = value.windows(word.len());
        places.any(|place| place.eq_ignore_ascii_case(word))
    };
    // Browsers begin with HTML when they navigate, so that the search ends at once.
    if begins(b"text/html") || has(b"text/html") || has(b"application/xhtml+xml") {
        1
    } else if begins(b"image/") {
        2
    } else if has(b"*/*") {
        3
    } else {
        OTHER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAVIGATION: Request<'_> = Request {
        site: Some(b"cross-site"),
        mode: Some(b"navigate"),
        destination: Some(b"document"),
        user: Some(b"?1"),
        accept: Some(b"text/html,application/xhtml+xml,*/*;q=0.8"),
        protocol: Protocol::Http2,
        is_tls: true,
        is_truncated: false,
    };

    #[test]
    fn every_field_has_its_bits() {
        for (request, number) in [
            (Request::default(), 1),
            (NAVIGATION, 0x2_cc99),
            (
                Request {
                    is_truncated: true,
                    user: Some(b"?0"),
                    ..NAVIGATION
                },
                0x6_c899,
            ),
            (
                Request {
                    site: Some(b"none"),
                    mode: Some(b"no-cors"),
                    destination: Some(b"image"),
                    accept: Some(b"image/avif,*/*;q=0.8"),
                    protocol: Protocol::Http3,
                    ..Request::default()
                },
                0x1_1233,
            ),
            (
                Request {
                    site: Some(b""),
                    mode: Some(b"Navigate"),
                    destination: Some(b"elsewhere"),
                    accept: Some(b"application/json"),
                    protocol: Protocol::Http10,
                    ..Request::default()
                },
                0x7bff,
            ),
        ] {
            let evidence = VisitEvidence::of(&request);
            assert_eq!(evidence.number(), number, "{:x} {request:?}", evidence.0);
            assert_eq!(VisitEvidence::from_number(number.into()), evidence);
            assert_eq!(evidence.protocol(), request.protocol);
            assert_eq!(evidence.is_tls(), request.is_tls);
            assert_eq!(evidence.is_truncated(), request.is_truncated);
        }
    }

    #[test]
    fn without_a_record_nothing_is_known() {
        for number in [0, 1 << 31, 0xffff_ffff_0000_0000] {
            assert_eq!(VisitEvidence::from_number(number), VisitEvidence::UNKNOWN);
        }
        let unknown = VisitEvidence::UNKNOWN;
        assert_eq!((unknown.fetch(), unknown.accept()), (None, None));
        assert_eq!(unknown.protocol(), Protocol::Unknown);
    }

    #[test]
    fn reserved_bits_are_preserved() {
        let number = 0x7ff8_0001;
        let evidence = VisitEvidence::from_number(number);
        assert_eq!(u64::from(evidence.number()), number);
        assert_eq!(evidence.fetch(), Some(Fetch::None));
    }

    #[test]
    fn the_mode_decides_before_the_destination() {
        let fetch = |mode: &str, destination: &str| {
            let sent = |text| Some(text).filter(|text: &&str| !text.is_empty());
            let request = Request {
                mode: sent(mode).map(str::as_bytes),
                destination: sent(destination).map(str::as_bytes),
                ..Request::default()
            };
            VisitEvidence::of(&request).fetch().expect("recorded")
        };
        for (mode, destination, expected) in [
            ("", "", Fetch::None),
            ("navigate", "document", Fetch::Navigation),
            ("navigate", "", Fetch::Navigation),
            ("navigate", "empty", Fetch::Navigation),
            ("navigate", "iframe", Fetch::Navigation),
            ("", "document", Fetch::Navigation),
            ("no-cors", "image", Fetch::Part),
            ("cors", "empty", Fetch::Part),
            ("same-origin", "script", Fetch::Part),
            ("websocket", "", Fetch::Part),
            ("", "image", Fetch::Part),
            ("later", "document", Fetch::Other),
            ("", "later", Fetch::Other),
        ] {
            assert_eq!(fetch(mode, destination), expected, "{mode} {destination}");
        }
        let site = Request {
            site: Some(b"none"),
            ..Request::default()
        };
        assert_eq!(VisitEvidence::of(&site).fetch(), Some(Fetch::Other));
    }

    #[test]
    fn only_the_kind_of_accept_counts() {
        let long = [
            b"application/x-unknown;q=0.1,".repeat(10),
            b"text/html".to_vec(),
        ]
        .concat();
        for (value, expected) in [
            (None, Accept::None),
            (Some(&b"text/html"[..]), Accept::Html),
            (Some(b"Text/HTML;q=0.9"), Accept::Html),
            (Some(b"*/*, application/xhtml+xml"), Accept::Html),
            (Some(b"image/webp,*/*"), Accept::Image),
            (Some(b"*/*"), Accept::Any),
            (Some(b"application/json, */*"), Accept::Any),
            (Some(b""), Accept::Other),
            (Some(b"text/plain"), Accept::Other),
            (Some(&long), Accept::Other),
        ] {
            let request = Request {
                accept: value,
                ..Request::default()
            };
            assert_eq!(VisitEvidence::of(&request).accept(), Some(expected));
        }
    }
}
