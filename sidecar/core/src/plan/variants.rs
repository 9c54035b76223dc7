//! A/B tests: variants with weights become rules with shares, and a winner ends the test.

use vocabulary::plan::Share;

use super::{Conditions, Plan, Rule, rules_text, sections};

/// A target for a part of all visitors.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The name that visits carry.
    pub name: String,
    /// The part, relative to the weights of the others; not negative.
    pub weight: f64,
    /// The target; of a campaign, its template.
    pub target: String,
}

/// Result of the end of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The target of the winner; `None` if that is the default one.
    pub target: Option<String>,
    /// The rules that are left.
    pub rules: String,
}

/// Writes variants down, at least one of which has a weight above 0; those without one get no visitors, and no rule. An
/// empty list ends the test.
pub fn variants_text(variants: &[Variant]) -> String {
    let weights: Vec<f64> = variants.iter().map(|it| it.weight).collect();
    let rules = variants.iter().zip(points(&weights, Share::WHOLE));
    let rules = rules.filter(|(_, points)| *points > 0);
    let rules = rules.map(|(variant, points)| Rule {
        conditions: Conditions {
            points: Some(points),
            variant: Some(variant.name.clone()),
            ..Conditions::default()
        },
        target: variant.target.clone(),
    });
    rules_text(&rules.collect::<Vec<_>>())
}

/// The rules with other variants behind those that are no shares of all visitors. Points that these have are left out of
/// the test.
pub(super) fn with_variants(rules: &str, variants: &str) -> String {
    let mut rules: Vec<Rule> = sections(rules).rules().map(Rule::of_record).collect();
    rules.retain(|rule| !rule.is_share());
    let taken = rules.iter().filter_map(|rule| rule.conditions.points).sum();
    let mut added: Vec<Rule> = sections(variants).rules().map(Rule::of_record).collect();
    let weights = added.iter().filter_map(|rule| rule.conditions.points);
    let weights: Vec<f64> = weights.map(f64::from).collect();
    let shares = points(&weights, Share::WHOLE.saturating_sub(taken));
    for (rule, points) in added.iter_mut().zip(shares) {
        rule.conditions.points = Some(points);
    }
    rules.extend(added);
    rules_text(&rules)
}

/// Divides points by weights: each part has the next number of points above or below its exact one, and one at least if it
/// has a weight. The sum is right unless there are fewer points than parts.
fn points(weights: &[f64], whole: u16) -> Vec<u16> {
    let sum: f64 = weights.iter().sum();
    if sum <= 0.0 {
        return vec![0; weights.len()];
    }
    let exact: Vec<f64> = weights
        .iter()
        .map(|weight| weight / sum * f64::from(whole))
        .collect();
    let least = |exact: f64| (exact as u16).max(u16::from(exact > 0.0));
    let mut points: Vec<u16> = exact.iter().map(|exact| least(*exact)).collect();
    // How far a part is from its exact one: the rest goes to those that lack most, or comes from those that have most.
    let lack = |points: &[u16], place: usize| exact[place] - f64::from(points[place]);
    let places = || 0..weights.len();
    loop {
        let total: u16 = points.iter().sum();
        let by_lack = |one: &usize, other: &usize| {
            // The first one of equals.
            let lacks = [*one, *other].map(|place| lack(&points, place));
            lacks[0].total_cmp(&lacks[1]).then(other.cmp(one))
        };
        if total < whole {
            let Some(place) = places().filter(|place| exact[*place] > 0.0).max_by(by_lack) else {
                return points;
            };
            points[place] += 1;
        } else if total > whole {
            let Some(place) = places().filter(|place| points[*place] > 1).min_by(by_lack) else {
                return points;
            };
            points[place] -= 1;
        } else {
            return points;
        }
    }
}

/// The names of the variants if a winner is none of them; the default target, whose name is empty, always can be.
pub fn missing_variant(plan: Option<&Plan>, winner: &str) -> Option<Vec<String>> {
    let names = plan.map(Plan::variants).unwrap_or_default();
    let is_missing =
        !names.is_empty() && !winner.is_empty() && !names.iter().any(|it| it == winner);
    is_missing.then_some(names)
}

impl Plan {
    /// The names of the variants that are shares of all visitors, in the order of their rules.
    pub fn variants(&self) -> Vec<String> {
        let rules = self.rules().into_iter().filter(Rule::is_share);
        rules.filter_map(|rule| rule.conditions.variant).collect()
    }

    /// The end of the test: without the rules that are shares of all visitors, and with the target of the winner. An empty
    /// name is that of the default target. `None` if there are no shares, or none with this name.
    pub fn ended(&self, winner: &str) -> Option<Ended> {
        let (shares, rest): (Vec<Rule>, Vec<Rule>) =
            self.rules().into_iter().partition(Rule::is_share);
        let won = shares.iter().find(|rule| {
            let name = rule.conditions.variant.as_deref();
            name.is_some_and(|name| name == winner)
        });
        if won.is_none() && (shares.is_empty() || !winner.is_empty()) {
            return None;
        }
        Some(Ended {
            target: won.map(|rule| rule.target.clone()),
            rules: rules_text(&rest),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn variant(name: &str, weight: f64) -> Variant {
        Variant {
            name: name.to_owned(),
            weight,
            target: format!("https://e.example/{name}"),
        }
    }

    fn section(text: &str) -> String {
        format!("R{}:{text}", text.len())
    }

    #[test]
    fn weights_divide_all_visitors() {
        for (weights, expected) in [
            (&[2.0, 1.0][..], &[6667, 3333][..]),
            (&[1.0, 1.0, 1.0], &[3334, 3333, 3333]),
            (&[0.5, 0.5], &[5000, 5000]),
            (&[7.0], &[10_000]),
            (&[0.0, 3.0], &[0, 10_000]),
            (&[1_000_000.0, 1.0], &[9999, 1]),
            (&[0.0, 0.0], &[0, 0]),
        ] {
            assert_eq!(points(weights, Share::WHOLE), expected, "{weights:?}");
        }
    }

    #[test]
    fn variants_take_the_place_of_shares_and_come_behind_other_rules() {
        let of_phones = &section("d=i https://apps.example/xyz");
        let shares = section("s=0.0-3000;v=old https://e.example/old");
        let text = variants_text(&[variant("a", 2.0), variant("b", 1.0), variant("c", 0.0)]);
        let parts = |first: &str, second: &str| {
            section(&format!("s=0.{first};v=a https://e.example/a"))
                + &section(&format!("s=0.{second};v=b https://e.example/b"))
        };
        assert_eq!(text, parts("0-6667", "6667-10000"));
        let before = format!("{of_phones}{shares}");
        assert_eq!(with_variants(&before, &text), format!("{of_phones}{text}"));
        assert_eq!(with_variants(&before, ""), *of_phones);
        // Visitors of a share with another condition are not in the test.
        let some = section("d=i;s=0.0-4000 https://apps.example/part");
        let expected = some.clone() + &parts("4000-8000", "8000-10000");
        assert_eq!(with_variants(&some, &text), expected);
    }

    #[test]
    fn a_winner_takes_the_place_of_the_default_target() {
        let of_phones = &section("d=i https://apps.example/xyz");
        let shares = variants_text(&[variant("a", 1.0), variant("b", 1.0)]);
        let target = crate::target::Target::from_stored("https://e.example/".to_owned());
        let plan = Plan::of_link(format!("{of_phones}{shares}"), &target).expect("a plan");
        assert_eq!(plan.variants(), ["a", "b"]);
        let ended = |target: Option<&str>| Ended {
            target: target.map(str::to_owned),
            rules: of_phones.clone(),
        };
        assert_eq!(plan.ended("b"), Some(ended(Some("https://e.example/b"))));
        assert_eq!(plan.ended(""), Some(ended(None)));
        assert_eq!(plan.ended("c"), None);
        let rest = Plan::of_link(of_phones.clone(), &target).expect("a plan");
        assert_eq!(rest.ended(""), None);
    }

    proptest! {
        #[test]
        fn parts_are_next_to_exact_ones(weights in prop::collection::vec(0_u32..2000, 1..20)) {
            let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
            let sum: f64 = weights.iter().sum();
            let points = points(&weights, Share::WHOLE);
            let total = points.iter().map(|it| u32::from(*it)).sum::<u32>();
            prop_assert_eq!(total, if sum > 0.0 { 10_000 } else { 0 });
            for (weight, points) in weights.iter().zip(points) {
                let exact = weight / sum.max(1.0) * 10_000.0;
                prop_assert_eq!(points == 0, *weight == 0.0);
                prop_assert!((f64::from(points) - exact).abs() < 2.0, "{exact} {points}");
            }
        }
    }
}
