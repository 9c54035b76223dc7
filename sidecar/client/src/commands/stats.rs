//! `shortlink stats`

use clap::{Args, Subcommand};
use jiff::tz::TimeZone;
use serde_json::{Map, Value};
use url::form_urlencoded::Serializer;

use super::session::Session;
use super::show::{cells, elements, heads, member, number, percent, plain, second};
use super::values::{CodeText, When, campaign_id};
use super::variants;
use crate::Failure;
use crate::columns::Columns;
use crate::output::thousands;

/// Commands for statistics of visits.
#[derive(Debug, Subcommand)]
pub enum StatsCommand {
    /// Show the visits of a link.
    Link {
        /// Code or short URL of the link.
        code: CodeText,
        #[command(flatten)]
        range: Range,
    },
    /// Show the visits of all links of a campaign.
    Campaign {
        /// Id of the campaign.
        #[arg(value_parser = campaign_id)]
        id: String,
        #[command(flatten)]
        range: Range,
    },
    /// Show how many links of a campaign were clicked, and the hours of their first clicks.
    Clicks {
        /// Id of the campaign.
        #[arg(value_parser = campaign_id)]
        id: String,
    },
    /// Compare campaigns: links issued and clicked, click rate, hours to half of the clicks, and human visits.
    Compare {
        /// Ids of the campaigns. Default: the latest ten.
        #[arg(value_parser = campaign_id)]
        ids: Vec<String>,
        /// Dimension of a further table, as for `stats campaign`. Can be repeated; commas separate
        /// several values.
        #[arg(long, value_name = "DIMENSION", value_delimiter = ',')]
        by: Vec<String>,
        /// Maximum number of values of each dimension: 1 to 100. Default: 10.
        #[arg(long, value_name = "NUMBER")]
        limit: Option<u32>,
    },
    /// Show the links with the most clicks, of a campaign or of all links without a campaign.
    Top {
        /// Id of the campaign.
        #[arg(long, value_name = "ID", value_parser = campaign_id)]
        campaign: Option<String>,
        /// Maximum number of links: 1 to 1000. Default: 10.
        #[arg(long, value_name = "NUMBER")]
        limit: Option<u32>,
    },
    /// Compare the variants of an A/B test of a link or a campaign: clicks, conversions, and their rate with its interval.
    Variants {
        /// Code or short URL of the link.
        #[arg(required_unless_present = "campaign", conflicts_with = "campaign")]
        code: Option<CodeText>,
        /// Id of the campaign.
        #[arg(long, value_name = "ID", value_parser = campaign_id)]
        campaign: Option<String>,
    },
    /// Show the visits of all links.
    All {
        #[command(flatten)]
        range: Range,
    },
    /// Show the recent visits of each short domain, and the last minute that has visits.
    ///
    /// The visits of a blocked short domain end at some minute. With --json, the output has the visits of each minute.
    Domains {
        /// Length of the period up to now, in minutes: 1 to 1440.
        #[arg(long, value_name = "MINUTES", default_value_t = 60)]
        minutes: u32,
    },
}

/// A time zone by its name in the IANA database.
fn zone(name: &str) -> Result<TimeZone, String> {
    let zone = TimeZone::get(name).ok();
    let zone = zone.filter(|zone| zone.iana_name().is_some());
    zone.ok_or_else(|| "give the name of a time zone, such as Asia/Shanghai or UTC".to_owned())
}

/// Options of statistics.
#[derive(Debug, Args)]
pub struct Range {
    /// Start of the period: a time such as 2030-12-31T23:00:00Z, or a day, rounded down to a whole
    /// hour. The period is at most 800 days long. Default: seven days before the end, or 24 hours with --interval
    /// minute.
    #[arg(long, value_name = "TIME")]
    since: Option<When>,
    /// End of the period: a time or a day, rounded down to a whole hour. Default: now, including the current hour.
    #[arg(long, value_name = "TIME")]
    until: Option<When>,
    /// Length of the intervals: minute, hour or day. Default: hour for a period of up to three days, else day.
    /// Minutes are for at most 24 hours of the last two days.
    #[arg(long, value_name = "INTERVAL")]
    interval: Option<String>,
    /// Time zone of the days, such as Asia/Shanghai. Default: UTC.
    #[arg(long, value_name = "NAME", value_parser = zone)]
    timezone: Option<TimeZone>,
    /// Dimension of a further table: domain, country, device, browser, os, referrer, network, status or
    /// variant. Can be repeated; commas separate several values.
    #[arg(long, value_name = "DIMENSION", value_delimiter = ',')]
    by: Vec<String>,
    /// Maximum number of values of each dimension: 1 to 1000. Default: 50.
    #[arg(long, value_name = "NUMBER")]
    limit: Option<u32>,
}

impl Range {
    fn path(&self, path: &str) -> Result<String, Failure> {
        let zone = self.timezone.clone().unwrap_or(TimeZone::UTC);
        let moment = |when: Option<When>| when.map(|when| when.in_zone(&zone)).transpose();
        let moment = |when| moment(when).map_err(|error| Failure::Usage(error.to_string()));
        Ok(asking(
            path,
            [
                ("since", moment(self.since)?),
                ("until", moment(self.until)?),
                ("interval", self.interval.clone()),
                (
                    "timezone",
                    self.timezone
                        .as_ref()
                        .and_then(TimeZone::iana_name)
                        .map(str::to_owned),
                ),
                ("by", joined(&self.by)),
                ("limit", self.limit.map(|limit| limit.to_string())),
            ],
        ))
    }
}

/// Values in one parameter; `None` without any.
fn joined(values: &[String]) -> Option<String> {
    (!values.is_empty()).then(|| values.join(","))
}

/// A path with those parameters that have a value.
fn asking<const N: usize>(path: &str, parameters: [(&str, Option<String>); N]) -> String {
    let mut query = Serializer::new(String::new());
    for (name, value) in parameters {
        if let Some(value) = value {
            query.append_pair(name, &value);
        }
    }
    format!("{path}?{}", query.finish())
}

impl StatsCommand {
    /// Runs the command.
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let path = match self {
            Self::Link { code, range } => range.path(&code.path("/stats"))?,
            Self::Campaign { id, range } => range.path(&format!("/v1/campaigns/{id}/stats"))?,
            Self::Clicks { id } => {
                let path = format!("/v1/campaigns/{id}/clicks");
                return session.get(&path, describe_clicks).await;
            }
            Self::Compare { ids, by, limit } => {
                let limit = limit.map(|limit| limit.to_string());
                let parameters = [("id", joined(&ids)), ("by", joined(&by)), ("limit", limit)];
                let path = asking("/v1/reports/campaigns", parameters);
                return session.get(&path, describe_campaigns).await;
            }
            Self::Top { campaign, limit } => {
                let limit = limit.map(|limit| limit.to_string());
                let path = asking(
                    "/v1/reports/links",
                    [("campaignId", campaign), ("limit", limit)],
                );
                return session.get(&path, describe_links).await;
            }
            Self::Variants { code, campaign } => {
                let of_campaign = campaign.map(|id| format!("/v1/campaigns/{id}/variants"));
                let of_link = || code.map(|code| code.path("/variants"));
                let path = of_campaign.or_else(of_link).unwrap_or_default();
                return session.get(&path, variants::describe).await;
            }
            Self::All { range } => range.path("/v1/stats")?,
            Self::Domains { minutes } => {
                let path = format!("/v1/domains/stats?minutes={minutes}");
                return session.get(&path, describe_domains).await;
            }
        };
        session.get(&path, describe).await
    }
}

/// A table of counts, behind a column for what they are of.
fn table<'v>(head: &'static str, rows: impl Iterator<Item = (String, &'v Value)>) -> String {
    let table = [
        (head, "/begin"),
        ("TOTAL", "/total"),
        ("HUMAN", "/human"),
        ("PREVIEW", "/preview"),
        ("SCANNER", "/scanner"),
        ("BOT", "/bot"),
        ("UNKNOWN", "/unknown"),
        ("REFUSED", "/refused"),
    ];
    let rows = rows.map(|(of, counts)| {
        let mut row = cells(counts, &table);
        row[0] = of;
        row
    });
    Columns::new(heads(&table), &[1, 2, 3, 4, 5, 6, 7]).rows(&rows.collect::<Vec<_>>())
}

/// Statistics as text.
fn describe(stats: &Value) -> String {
    let begin = |of: &Value| second(&member(of, "/begin"));
    let (since, until) = (member(stats, "/since"), member(stats, "/until"));
    let mut text = format!("{} to {}\n\n", second(&since), second(&until));
    let head = match member(stats, "/interval").as_str() {
        "minute" => "MINUTE",
        "hour" => "HOUR",
        _ => "DAY",
    };
    let intervals = elements(stats, "intervals").iter();
    let all = ("all".to_owned(), &stats["visits"]);
    let rows = intervals.map(|interval| (begin(interval), interval));
    text.push_str(&table(head, rows.chain([all])));
    let visitors = elements(stats, "visitors").iter();
    if visitors.len() > 0 {
        let rows: Vec<[String; 2]> = visitors
            .map(|day| [begin(day), member(day, "/visitors")])
            .collect();
        text.push('\n');
        text.push_str(&Columns::new(["DAY", "VISITORS"], &[1]).rows(&rows));
    }
    let dimensions = stats.get("by").and_then(Value::as_object);
    for dimension in dimensions.into_iter().flat_map(Map::keys) {
        let rows = elements(&stats["by"], dimension)
            .iter()
            .map(|value| (named(&value["value"]), value));
        let (dimension, table) = (plain(dimension).to_uppercase(), table("", rows));
        text.push_str(&format!("\nBY {dimension}\n{table}"));
    }
    text
}

/// The clicks of a campaign as text.
fn describe_clicks(clicks: &Value) -> String {
    let number = |place| {
        clicks
            .get(place)
            .and_then(Value::as_u64)
            .unwrap_or_default()
    };
    let rate = percent(&clicks["clickRate"]);
    let head = [
        thousands(number("issued")),
        thousands(number("clicked")),
        rate,
    ];
    let mut text = Columns::new(["ISSUED", "CLICKED", "CLICK RATE"], &[0, 1, 2]).rows(&[head]);
    let rows: Vec<[String; 3]> = elements(clicks, "hours")
        .iter()
        .map(|hour| {
            let begin = second(&member(hour, "/begin"));
            [begin, member(hour, "/hoursAfter"), member(hour, "/links")]
        })
        .collect();
    if !rows.is_empty() {
        let table = Columns::new(["HOUR", "HOURS AFTER", "FIRST CLICKS"], &[1, 2]).rows(&rows);
        text.push_str(&format!("\n{table}"));
    }
    text
}

/// The name of a value.
fn named(value: &Value) -> String {
    match plain(value.as_str().unwrap_or_default()) {
        text if text.is_empty() => "not known".to_owned(),
        text => text,
    }
}

/// A report on campaigns as text: one table of all, and one for each dimension of each.
fn describe_campaigns(report: &Value) -> String {
    let campaigns = elements(report, "campaigns");
    let rows: Vec<[String; 7]> = campaigns
        .iter()
        .map(|it| {
            [
                member(it, "/id"),
                number(&it["issued"]),
                number(&it["clicked"]),
                percent(&it["clickRate"]),
                member(it, "/hoursToHalf"),
                number(&it["visits"]["human"]),
                member(it, "/name"),
            ]
        })
        .collect();
    let heads = [
        "ID",
        "ISSUED",
        "CLICKED",
        "CLICK RATE",
        "HOURS TO HALF",
        "HUMAN VISITS",
        "NAME",
    ];
    let mut text = Columns::new(heads, &[1, 2, 3, 4, 5]).rows(&rows);
    let of_messages = |of: &Value| {
        ["/sent", "/rejected", "/expired", "/failed", "/delivered"].map(|name| member(of, name))
    };
    let has_messages = |it: &&Value| !elements(it, "messagesByNetwork").is_empty();
    for it in campaigns.iter().filter(has_messages) {
        let mut rows: Vec<[String; 8]> = Vec::new();
        let networks = elements(it, "messagesByNetwork").iter();
        let networks = networks.map(|of| (named(&of["network"]), of));
        for (name, of) in networks.chain([("all".to_owned(), &it["messages"])]) {
            let [sent, rejected, expired, failed, delivered] = of_messages(of);
            let (clicked, rate) = (member(of, "/clicked"), percent(&of["clickRate"]));
            rows.push([
                name, sent, rejected, expired, failed, delivered, clicked, rate,
            ]);
        }
        let heads = [
            "",
            "SENT",
            "REJECTED",
            "EXPIRED",
            "FAILED",
            "DELIVERED",
            "CLICKED",
            "CLICK RATE",
        ];
        let table = Columns::new(heads, &[1, 2, 3, 4, 5, 6, 7]).rows(&rows);
        let (id, rate) = (member(it, "/id"), percent(&it["deliveredClickRate"]));
        text.push_str(&format!(
            "\nMESSAGES OF CAMPAIGN {id} (CLICKED OF DELIVERED: {rate})\n{table}"
        ));
    }
    for it in campaigns {
        let dimensions = it.get("by").and_then(Value::as_object);
        for dimension in dimensions.into_iter().flat_map(Map::keys) {
            let rows: Vec<[String; 3]> = elements(&it["by"], dimension)
                .iter()
                .map(|value| {
                    let of = named(&value["value"]);
                    [of, number(&value["human"]), percent(&value["humanShare"])]
                })
                .collect();
            let table = Columns::new(["", "HUMAN VISITS", "SHARE"], &[1, 2]).rows(&rows);
            let (id, dimension) = (member(it, "/id"), plain(dimension).to_uppercase());
            text.push_str(&format!("\nCAMPAIGN {id} BY {dimension}\n{table}"));
        }
    }
    text
}

/// A report on links as text.
fn describe_links(report: &Value) -> String {
    let table = [
        ("CODE", "/shortCode"),
        ("CLICKS", "/clicks"),
        ("FIRST CLICK", "/firstClickAt"),
        ("LAST CLICK", "/lastClickAt"),
        ("EXTERNAL ID", "/externalId"),
    ];
    let rows: Vec<[String; 5]> = elements(report, "links")
        .iter()
        .map(|link| {
            let mut row = cells(link, &table);
            (row[2], row[3]) = (second(&row[2]), second(&row[3]));
            row
        })
        .collect();
    let text = Columns::new(heads(&table), &[1]).rows(&rows);
    match report.get("isComplete").and_then(Value::as_bool) {
        Some(false) => format!("{text}\nOnly 1,000,000 clicked links were compared.\n"),
        _ => text,
    }
}

fn describe_domains(stats: &Value) -> String {
    let rows: Vec<[String; 3]> = elements(stats, "domains")
        .iter()
        .map(|domain| {
            let minutes = elements(domain, "minutes");
            let last = minutes
                .iter()
                .rfind(|minute| minute.get("visits").and_then(Value::as_u64) != Some(0));
            let last = last.map_or("-".to_owned(), |minute| second(&member(minute, "/begin")));
            [member(domain, "/domain"), member(domain, "/visits"), last]
        })
        .collect();
    let since = second(&member(stats, "/since"));
    let table = Columns::new(["DOMAIN", "VISITS", "LAST MINUTE WITH VISITS"], &[1]).rows(&rows);
    format!("since {since}\n\n{table}")
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use serde_json::json;

    use super::*;

    #[test]
    fn statistics_are_told_as_tables() {
        let counts = |total: u32| json!({"total": total, "human": 1, "preview": 0, "scanner": 0, "bot": 0, "unknown": 0, "refused": 7});
        let mut interval = counts(2);
        interval["begin"] = json!("2026-01-02T00:00:00Z");
        let mut value = counts(2);
        value["value"] = json!("");
        let stats = json!({
            "since": "2026-01-01T00:00:00.5Z", "until": "2026-01-03T00:00:00Z", "interval": "day",
            "visits": counts(20), "intervals": [interval],
            "visitors": [
                {"begin": "2026-01-01T00:00:00Z", "visitors": null},
                {"begin": "2026-01-02T00:00:00Z", "visitors": 3},
            ],
            "by": {"os": [value]},
        });
        let text = describe(&stats);
        for part in [
            "2026-01-01T00:00:00Z to 2026-01-03T00:00:00Z",
            "2026-01-02T00:00:00Z      2      1",
            "all                      20      1        0        0    0        0        7",
            "all                      20",
            "2026-01-01T00:00:00Z         -",
            "2026-01-02T00:00:00Z         3",
            "BY OS",
            "not known",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn clicks_are_shown_as_tables() {
        let clicks = json!({
            "issued": 20_000, "clicked": 1_300, "clickRate": 0.065, "firstLinkAt": "2026-01-01T08:10:00Z",
            "hours": [
                {"begin": "2026-01-01T08:00:00Z", "hoursAfter": 0, "links": 1_200},
                {"begin": "2026-01-01T11:00:00Z", "hoursAfter": 3, "links": 100},
            ],
        });
        let text = describe_clicks(&clicks);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|it| it.split_whitespace().collect())
            .collect();
        assert_eq!(lines[1], ["20,000", "1,300", "6.5%"]);
        assert_eq!(
            lines[4..],
            [
                ["2026-01-01T08:00:00Z", "0", "1200"],
                ["2026-01-01T11:00:00Z", "3", "100"]
            ]
        );
        let empty = json!({"issued": 0, "clicked": 0, "clickRate": null, "hours": []});
        assert_eq!(describe_clicks(&empty).lines().count(), 2);
    }

    #[test]
    fn campaigns_are_compared_in_a_table() {
        let report = json!({"campaigns": [
            {
                "id": "7", "name": "Spring sale", "issued": 20_000, "clicked": 1_300, "clickRate": 0.065,
                "hoursToHalf": 2, "visits": {"human": 1_500}, "deliveredClickRate": 0.1,
                "messages": {"sent": 0, "rejected": 0, "expired": 1, "failed": 2, "delivered": 13_000},
                "messagesByNetwork": [
                    {
                        "network": "", "sent": 0, "rejected": 0, "expired": 1, "failed": 2, "delivered": 13_000,
                        "clicked": 1_290, "clickRate": 0.099,
                    },
                ],
                "by": {"network": [{"value": "", "human": 300, "humanShare": 0.2}]},
            },
            {
                "id": "6", "name": "Test", "issued": 0, "clicked": null, "clickRate": null, "hoursToHalf": null,
                "visits": {"human": 0},
            },
        ]});
        let text = describe_campaigns(&report);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|it| it.split_whitespace().collect())
            .collect();
        assert_eq!(
            lines[1],
            [
                "7", "20,000", "1,300", "6.5%", "2", "1,500", "Spring", "sale"
            ]
        );
        assert_eq!(lines[2], ["6", "0", "-", "-", "-", "0", "Test"]);
        assert_eq!(
            lines[6],
            ["not", "known", "0", "0", "1", "2", "13000", "1290", "9.9%"]
        );
        assert_eq!(lines[7][0], "all");
        assert_eq!(lines[9], ["CAMPAIGN", "7", "BY", "NETWORK"]);
        assert_eq!(lines[11], ["not", "known", "300", "20.0%"]);
    }

    #[test]
    fn links_are_ranked_in_a_table() {
        let link = json!({
            "shortCode": "abc", "externalId": null, "clicks": 3, "firstClickAt": "2026-01-01T08:10:00.5Z",
            "lastClickAt": "2026-01-02T08:10:00Z",
        });
        let text = describe_links(&json!({"links": [link], "isComplete": false}));
        let cells: Vec<&str> = text
            .lines()
            .nth(1)
            .expect("a row")
            .split_whitespace()
            .collect();
        assert_eq!(
            cells[..4],
            ["abc", "3", "2026-01-01T08:10:00Z", "2026-01-02T08:10:00Z"]
        );
        assert!(text.contains("were compared"), "{text}");
    }

    #[test]
    fn a_range_becomes_a_query() {
        let range = Range {
            since: Some(When::On(date(2026, 1, 1))),
            until: Some("2026-01-02T00:00:00Z".parse().expect("a time")),
            interval: Some("day".to_owned()),
            timezone: Some(zone("Asia/Shanghai").expect("a zone")),
            by: vec!["os".to_owned(), "device".to_owned()],
            limit: Some(3),
        };
        assert_eq!(
            range.path("/v1/stats").expect("a path"),
            "/v1/stats?since=2025-12-31T16%3A00%3A00Z&until=2026-01-02T00%3A00%3A00Z&interval=day&timezone=Asia%2FShanghai&by=os%2Cdevice&limit=3"
        );
    }
}
