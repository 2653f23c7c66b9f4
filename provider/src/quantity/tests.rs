use proptest::prelude::*;

use super::*;

/// What apimachinery prints for each text, written down from a run of its own parser.
#[rustfmt::skip]
const KUBERNETES: &[(&str, &str)] = &[
    ("0", "0"), ("1", "1"), ("1.5Gi", "1536Mi"), ("1Ei", "1Ei"), ("1E", "1E"), ("1Ki", "1Ki"),
    ("100m", "100m"), ("0.1", "100m"), ("1e3", "1e3"), ("1E3", "1e3"), ("1e-3", "1e-3"), ("1E+2", "100"),
    ("12e6", "12e6"), ("1000", "1k"), ("1500", "1500"), ("1000000", "1M"), ("1024", "1024"),
    ("1048576Ki", "1Gi"), ("1025Ki", "1025Ki"), ("0.5Ki", "512"), ("0.3Ki", "307200m"),
    ("1.1Ki", "1126400m"), ("1u", "1u"), ("5n", "5n"), ("0.1n", "1n"), ("0.0001u", "1n"), ("-1", "-1"),
    ("-1.5Gi", "-1536Mi"), ("+1", "1"), ("1.", "1"), ("1.G", "1G"), (".5", "500m"), ("-.5Gi", "-512Mi"),
    ("16Ei", "9223372036854775807"), ("9Ei", "9223372036854775807"), ("8Ei", "9223372036854775807"),
    ("7Ei", "7Ei"), ("9223372036854775807", "9223372036854775807"),
    ("9223372036854775808", "9223372036854775808"), ("100E", "100E"), ("1e18", "1e18"), ("1e21", "1e21"),
    ("123456789012345678", "123456789012345678"), ("0.999999999999", "1"),
    ("1.0000000001", "1000000001n"), ("0.0000000001Gi", "107374183n"), ("1000Ki", "1000Ki"),
    ("1000Gi", "1000Gi"), ("2500m", "2500m"), ("1000m", "1"), ("999m", "999m"), ("0Ki", "0"),
    ("00012", "12"), ("00.50", "500m"), ("1023", "1023"), ("1023Ki", "1023Ki"), ("-1024Ki", "-1Mi"),
    ("1e0", "1"), ("10e2", "1e3"), ("0e5", "0"), ("3.14159265358979E", "3141592653589790k"),
    ("0.1Ei", "115292150460684697600m"), ("17n", "17n"), ("1000000000n", "1"), ("1024000m", "1024"),
    ("1024500m", "1024500m"), ("1e-9", "1e-9"), ("1e-10", "1e-9"), ("1e-12", "1e-9"),
    ("12345678901234567890Ki", "9223372036854775807"), ("1.5e3", "1500"), ("1.5e2", "150"),
    ("1e5", "100e3"), ("1e4", "10e3"),
];

fn q(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn reads_and_prints_as_the_api_server_does() {
    for (text, printed) in KUBERNETES {
        assert_eq!(q(text).to_string(), *printed, "{text}");
    }
}

#[test]
fn bytes_that_make_no_whole_ki_print_as_the_server_stores_them() {
    for (text, printed) in [("1.953125Ki", "2k"), ("1000.5Ki", "1024512"), ("1Ki", "1Ki")] {
        assert_eq!(q(text).to_string(), printed);
        assert_eq!(q(printed).to_string(), printed, "read again, it is the same text");
    }
}

#[test]
fn what_is_not_a_quantity_is_refused() {
    let bad = [
        "1e", "", "1i", "1mi", "1K", "1g", "1 ", "1Gib", "1GiB", "1e+", "1e1.5", "--1", "1Mi1", "Ki", ".",
        "-", "+", ".Ki", "e3", "n", "1ä", "٣", "0x1", "inf", "NaN",
    ];
    for text in bad {
        assert!(text.parse::<Quantity>().is_err(), "{text:?}");
    }
    assert_eq!("9".repeat(300).parse::<Quantity>(), Err(QuantityError::TooLong));
}

#[test]
fn amounts_beyond_all_bounds_are_the_largest_there_is() {
    let most = q("1e999999999999");
    assert_eq!(most, q("1e500"));
    assert!(most > q("1e25"));
    assert_eq!(most + most, most);
    assert!(q("-1e999999999999") < q("-1e25"));
    assert_eq!(q("1e-999999999999"), q("1n"));
    assert_eq!(most.to_units(), i64::MAX);
}

#[test]
fn rounding_is_up_for_what_is_asked_and_down_for_what_is_there() {
    for (text, step, up, down) in [
        ("1", "1", 1, 1),
        ("1n", "1", 1, 0),
        ("1500m", "1", 2, 1),
        ("0", "1", 0, 0),
        ("-1500m", "1", -1, -2),
        ("1", "1m", 1000, 1000),
        ("100Mi", "1Mi", 100, 100),
        ("104857601", "1Mi", 101, 100),
        ("5", "0", 5_000_000_000, 5_000_000_000),
    ] {
        assert_eq!((q(text).steps_up(q(step)), q(text).steps_down(q(step))), (up, down), "{text} / {step}");
    }
    assert_eq!(q("1500m").to_units(), 2);
    assert_eq!(q("1500m").floor_units(), q("1"));
}

#[test]
fn a_share_is_exact_and_never_more() {
    assert_eq!(q("10").share(500), q("5"));
    assert_eq!(q("1").share(333), q("333m"));
    assert_eq!(q("1n").share(999), q("0"));
    assert_eq!(q("8Gi").share(1000).to_string(), "8Gi");
}

#[test]
fn a_sum_prints_like_its_first_part() {
    assert_eq!((q("1Gi") + q("1024")).to_string(), "1048577Ki");
    assert_eq!((q("0") + q("1Gi")).to_string(), "1Gi");
    assert_eq!((q("1Gi") - q("512Mi")).to_string(), "512Mi");
    assert_eq!([q("100m"), q("900m"), q("2")].into_iter().sum::<Quantity>().to_string(), "3");
}

proptest! {
    #[test]
    fn printing_loses_nothing(
        nano in any::<i64>().prop_map(i128::from),
        power in 0u32..18,
        form in prop::sample::select(vec![Form::Decimal, Form::Binary, Form::Exponent]),
    ) {
        // Binary amounts beyond 2^63 are cut when they are read, as in Kubernetes.
        let most = if form == Form::Binary { BINARY_CAP } else { i128::MAX };
        let quantity = Quantity::from_nano((nano * 10i128.pow(power)).clamp(-most, most), form);
        let text = quantity.to_string();
        prop_assert_eq!(q(&text), quantity);
        prop_assert_eq!(q(&text).to_string(), text);
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC*|[-+]?[0-9.]{0,40}[eEinumkKMGTPi]{0,3}[-+0-9]{0,12}") {
        if let Ok(quantity) = text.parse::<Quantity>() {
            let _ = (quantity.to_string(), quantity.to_units(), quantity.share(999), quantity + quantity);
        }
    }

    #[test]
    fn order_and_sums_are_those_of_numbers(a in -1_000_000i64..1_000_000, b in -1_000_000i64..1_000_000) {
        let (x, y) = (Quantity::milli(a), Quantity::milli(b));
        prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        prop_assert_eq!(x + y, Quantity::milli(a + b));
        prop_assert_eq!(x - y, Quantity::milli(a - b));
        prop_assert_eq!(q(&x.to_string()), x);
    }

    #[test]
    fn binary_fractions_are_exact(whole in 0i64..1000, sixteenths in 0i64..16, power in 1u32..5) {
        let text = format!("{whole}.{:04}{}", sixteenths * 625, BINARY[power as usize - 1]);
        prop_assert_eq!(q(&text), Quantity::bytes((whole * 16 + sixteenths) * (1 << (10 * power)) / 16));
    }
}
