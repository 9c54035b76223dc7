use super::*;

/// Uniform numbers, without the cost of a cryptographic generator in a debug build (SplitMix64).
struct Words(u64);

impl Words {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn visitor(&mut self) -> VisitorId {
        let (high, low) = (u128::from(self.next()), u128::from(self.next()));
        VisitorId(((high << 64) | low).to_be_bytes())
    }
}

fn sketch(visitors: usize, seed: u64) -> Sketch {
    let (mut sketch, mut words) = (Sketch::default(), Words(seed << 32));
    for _ in 0..visitors {
        let visitor = words.visitor();
        sketch.add(visitor);
        sketch.add(visitor);
    }
    sketch
}

/// The same as [`sketch`], with the registers of an earlier version.
fn sketch_before(visitors: usize, seed: u64) -> Sketch {
    let mut sketch = Sketch::of(BITS_BEFORE, vec![0; 1 << BITS_BEFORE].into());
    let mut words = Words(seed << 32);
    for _ in 0..visitors {
        sketch.add(words.visitor());
    }
    sketch
}

fn error(sketch: &Sketch, visitors: usize) -> f64 {
    sketch.estimate() as f64 / visitors as f64 - 1.0
}

/// Checks errors of estimates of sets of a size: without bias, and at least 99 of 100 within 2 %.
fn check(visitors: usize, errors: &[f64]) {
    let count = errors.len() as f64;
    let bias = errors.iter().sum::<f64>() / count;
    let deviation = (errors.iter().map(|error| error * error).sum::<f64>() / count).sqrt();
    let within = errors.iter().filter(|error| error.abs() <= 0.02).count();
    let within = within as f64 / count;
    println!(
        "{visitors}: bias {:.2} %, error {:.2} %, {:.1} % within 2 %",
        bias * 100.0,
        deviation * 100.0,
        within * 100.0
    );
    assert!(within >= 0.99, "{visitors}: {within}");
    let standard = 1.04 / f64::from(1 << BITS).sqrt();
    assert!(bias.abs() < standard / 2.0, "{visitors}: bias {bias}");
    assert!(deviation < 1.2 * standard, "{visitors}: error {deviation}");
}

#[test]
fn estimates_of_sets_of_every_size_are_within_two_percent() {
    const SIZES: [usize; 7] = [470, 490, 1_000, 3_000, 10_000, 11_000, 100_000];
    const STREAMS: u64 = 128;
    let mut errors = [const { Vec::new() }; SIZES.len()];
    for seed in 0..STREAMS {
        let (mut sketch, mut words) = (Sketch::default(), Words(seed << 32));
        let mut added = 0;
        for (errors, size) in errors.iter_mut().zip(SIZES) {
            for _ in added..size {
                sketch.add(words.visitor());
            }
            added = size;
            errors.push(error(&sketch, size));
        }
    }
    for (errors, size) in errors.iter().zip(SIZES) {
        check(size, errors);
    }
}

/// Larger sets are drawn register by register. With the number of visitors of a register from a Poisson distribution,
/// the number of all is random, too, by 0.1 % of a million.
#[test]
fn estimates_of_millions_are_within_two_percent() {
    for visitors in [1_000_000, 10_000_000] {
        let mean = visitors as f64 / f64::from(1 << BITS);
        let mut words = Words(7);
        let mut errors = Vec::new();
        for _ in 0..200 {
            let ranks = (0..1 << BITS).map(|_| {
                // P(rank <= r) = exp(-mean / 2^r)
                let uniform = ((words.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
                let rank = (mean / -uniform.ln()).log2().ceil();
                rank.clamp(0.0, MAX_RANK.into()) as u8
            });
            errors.push(error(&Sketch::of(BITS, ranks.collect()), visitors));
        }
        check(visitors, &errors);
    }
}

#[test]
fn visitors_are_counted_once_and_small_sets_exactly() {
    assert_eq!(Sketch::default().estimate(), 0);
    for visitors in [1, 2, 10, 100, MOST_LISTED] {
        assert_eq!(sketch(visitors, 1).estimate(), visitors as u64);
    }
    // Every register is full.
    let full = Sketch::of(BITS, vec![MAX_RANK; 1 << BITS].into());
    assert_eq!(full.estimate(), u64::MAX);
    let mut all_zero = Sketch::default();
    all_zero.add(VisitorId([0; 16]));
    assert_eq!(all_zero.estimate(), 1);
}

#[test]
fn a_folded_sketch_is_as_if_counted_with_fewer_registers() {
    let mut words = Words(11);
    for _ in 0..100_000 {
        let visitor = words.visitor();
        for (from, to) in [
            (BITS_OF_FEW, BITS),
            (BITS_OF_FEW, BITS_BEFORE),
            (BITS, BITS_BEFORE),
            (BITS, BITS),
        ] {
            let (register, rank) = place(visitor, from);
            assert_eq!(folded(register, rank, from, to), place(visitor, to));
        }
    }
    // Ids whose bits are all zero from some place on.
    for zeros in 0..=128 {
        let visitor = VisitorId(u128::MAX.checked_shl(zeros).unwrap_or(0).to_be_bytes());
        let (register, rank) = place(visitor, BITS_OF_FEW);
        let to = folded(register, rank, BITS_OF_FEW, BITS_BEFORE);
        assert_eq!(to, place(visitor, BITS_BEFORE), "{zeros}");
    }
    for visitors in [1, 300, 481, 20_000] {
        let mut folded = sketch(visitors, 3);
        folded.fold(BITS_BEFORE);
        assert_eq!(folded, sketch_before(visitors, 3), "{visitors}");
    }
}

#[test]
fn sketches_of_any_size_make_one_of_all() {
    for (one, other) in [
        (100, 200),
        (300, 400),
        (400, 5_000),
        (5_000, 400),
        (3_000, 4_000),
    ] {
        let mut merged = sketch(one, 1);
        merged.merge(&merged.clone());
        assert_eq!(merged, sketch(one, 1));
        merged.merge(&sketch(other, 2));
        let mut both = sketch(one, 1);
        let mut words = Words(2 << 32);
        for _ in 0..other {
            both.add(words.visitor());
        }
        assert_eq!(merged, both);
        let off = error(&merged, one + other);
        assert!(off.abs() < 0.02, "{one} and {other}: {off}");
        // With one that an earlier version has stored, in either order.
        let mut before = sketch_before(other, 2);
        let mut after = sketch(one, 1);
        after.merge(&before);
        before.merge(&sketch(one, 1));
        assert_eq!(before, after);
        assert_eq!(before.bits(), BITS_BEFORE);
        assert!(error(&before, one + other).abs() < 0.065);
    }
}

#[test]
fn a_sketch_is_read_as_it_was_stored() {
    for visitors in [
        0,
        1,
        MOST_LISTED,
        MOST_LISTED + 1,
        2_000,
        12_000,
        20_000,
        200_000,
    ] {
        let sketch = sketch(visitors, 5);
        let stored = Stored::from(&sketch);
        assert_eq!(stored.sketch().as_ref(), Some(&sketch), "{visitors}");
        let again = Stored {
            parts: stored.parts.clone(),
            ..Stored::with_head(&stored.head)
        };
        assert_eq!(again, stored);
        assert_eq!(
            Stored::with_head(&stored.head).parts.len(),
            stored.parts.len()
        );
        let bytes = stored.head.len() + stored.parts.iter().map(Vec::len).sum::<usize>();
        println!("{visitors}: {bytes} bytes");
        let most = if visitors > MOST_LISTED {
            32 * 768
        } else {
            1920
        };
        assert!(bytes <= most + 1, "{visitors}: {bytes}");
        assert!(bytes <= 4 * visitors + 1, "{visitors}: {bytes}");
        assert_eq!(sketch.stored_estimate(), Some(sketch.estimate()));
    }
    let before = sketch_before(3_000, 5);
    let stored = Stored::from(&before);
    assert_eq!((stored.head.len(), stored.parts.len()), (4096, 0));
    assert_eq!(stored.sketch(), Some(before.clone()));
    assert_eq!(before.stored_estimate(), None);
    for head in [
        &[][..],
        &[0],
        &[1, 0],
        &[1, 0, 0, 0, 0],
        &[1, 0xff, 0, 0, 1],
        &[2, 0],
        &[3],
    ] {
        assert_eq!(Stored::with_head(head).sketch(), None, "{head:?}");
    }
    let odd_part = Stored {
        parts: vec![vec![0]; 32],
        ..Stored::with_head(&[2])
    };
    assert_eq!(odd_part.sketch(), None);
}

/// Stored sketches outlive this version: other bytes need another first byte.
#[test]
fn the_stored_form_stays() {
    let mut few = Sketch::default();
    few.add(VisitorId([0; 16]));
    few.add(VisitorId([0xff; 16]));
    few.add(VisitorId([0x12; 16]));
    let stored = Stored::from(&few);
    assert_eq!(
        stored.head,
        [
            1, 0, 0, 0, 63, 0x09, 0x09, 0x09, 0x03, 0x7f, 0xff, 0xff, 0xc1
        ]
    );
    let mut all = Sketch::of(BITS, vec![0; 1 << BITS].into());
    all.add(VisitorId([0; 16]));
    all.add(VisitorId([0x12; 16]));
    let stored = Stored::from(&all);
    assert_eq!((&*stored.head, stored.parts.len()), (&[2][..], 32));
    assert_eq!(stored.parts[0], [0, 63]);
    // 0x1212 >> 1 is register 0x909: part 2, register 0x109.
    assert_eq!(stored.parts[2], [0x42, 0x45]);
    let full = Sketch::of(
        BITS,
        (0..1 << BITS).map(|at: u32| (at % 63) as u8 + 1).collect(),
    );
    let stored = Stored::from(&full);
    assert_eq!(stored.parts[0][..6], [0x04, 0x20, 0xc4, 0x14, 0x61, 0xc8]);
    assert_eq!(stored.parts[0].len(), 768);
}
