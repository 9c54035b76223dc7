//! Rules by the names of programs. The first matching rule wins.

use std::sync::LazyLock;

use vocabulary::preview::PREVIEW_AGENTS;

use super::Class;

/// A rule: a user agent with all of the words is of the class.
#[derive(Debug)]
pub(super) struct Rule {
    /// Words in lower case. A `^` marks one that must be at the start, a `!` one that security
    /// software also adds to the browser of a person: it counts outside of browsers' user agents.
    pub(super) words: Vec<&'static str>,
    /// The class.
    pub(super) class: Class,
    /// The reason for the class.
    pub(super) reason: &'static str,
}

/// The rules that [`PROGRAMS`] lists, in the same order.
pub(super) static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let classes = PROGRAMS.iter();
    let programs = classes.flat_map(|(class, programs)| programs.iter().map(move |it| (class, it)));
    let names = programs.flat_map(|(class, (reason, names))| {
        names.split('|').map(move |name| Rule {
            words: name.split('&').collect(),
            class: *class,
            reason,
        })
    });
    names.collect()
});

/// Names of programs by class and reason, the narrower before the wider. `|` separates the names of
/// a program, `&` the words of a name: a user agent must have all of them, in lower case. The marks of
/// words are those of [`Rule::words`]. nginx knows those of previews as well.
const PROGRAMS: &[(Class, &[(&str, &str)])] = &[
    (Class::Preview, PREVIEW_AGENTS),
    (
        Class::Scanner,
        &[
            ("proofpoint", "proofpoint"),
            ("mimecast", "mimecast"),
            ("barracuda", "barracuda"),
            ("safelinks", "safelinks"),
            ("microsoft-defender", "microsoft defender|microsoft-atp"),
            ("safe-browsing", "google-safety|safebrowsing"),
            ("virustotal", "virustotal"),
            ("urlscan", "urlscan"),
            ("cisco", "ciscosecureemail|ironport"),
            ("trend-micro", "!trendmicro|!tmes/"),
            ("symantec", "!symantec"),
            ("sophos", "!sophos"),
            ("fortinet", "fortiguard|fortimail"),
            ("forcepoint", "!forcepoint"),
            ("websense", "!websense"),
            ("mcafee", "!siteadvisor"),
            ("kaspersky", "!kaspersky"),
            ("bitdefender", "!bitdefender"),
            ("zscaler", "!zscaler"),
            ("checkpoint", "checkpoint-"),
            ("avanan", "avanan"),
            ("vade", "vadesecure"),
            ("palo-alto", "palo alto networks"),
            ("netcraft", "netcraft"),
            ("phishtank", "phishtank"),
            ("phishlabs", "phishlabs"),
            ("cloudflare", "cloudflare-radar-url-scanner"),
            ("censys", "censysinspect"),
            ("shodan", "shodan"),
            (
                "internet-measurement",
                "internetmeasurement|internet-measurement",
            ),
            ("leakix", "leakix"),
            ("odin", "getodin"),
            ("bitsight", "bitsight"),
            ("securitytrails", "securitytrails"),
            ("zgrab", "zgrab/"),
            ("masscan", "masscan"),
            ("nmap", "nmap scripting engine"),
            ("nuclei", "nuclei"),
            ("nikto", "nikto"),
            ("sqlmap", "sqlmap"),
            ("wpscan", "wpscan"),
            ("qualys", "qualys"),
            ("nessus", "nessus"),
            ("openvas", "openvas"),
            ("acunetix", "acunetix"),
            ("detectify", "detectify"),
            ("httpx", "^httpx - "),
        ],
    ),
    (
        Class::Bot,
        &[
            // Browsers without a user.
            (
                "headless",
                "headlesschrome|phantomjs|puppeteer|playwright|selenium|slimerjs",
            ),
            ("lighthouse", "chrome-lighthouse"),
            // Feed readers, one of which names the bot that it resembles.
            (
                "feed",
                "feedly|inoreader|feedbin|newsblur|tiny tiny rss|freshrss",
            ),
            // Crawlers.
            ("google-ads", "adsbot-google|mediapartners-google"),
            ("google-images", "googleimageproxy"),
            (
                "google",
                "google-read-aloud|feedfetcher-google|apis-google|googleother",
            ),
            (
                "google",
                "google-inspectiontool|google-extended|google favicon",
            ),
            ("googlebot", "googlebot"),
            ("bingbot", "bingbot|adidxbot"),
            ("baidu", "baiduspider"),
            ("yandex", "yandex&bot|yandexmobilebot"),
            ("sogou", "sogou&spider"),
            ("360", "360spider"),
            ("yisou", "yisouspider"),
            ("petal", "petalbot"),
            ("bytedance", "bytespider|tiktokspider"),
            ("duckduckgo", "duckduckbot|duckduckgo-favicons"),
            ("apple", "applebot"),
            ("yahoo", "yahoo! slurp"),
            ("naver", "naver.me/spd|yeti/"),
            ("seznam", "seznambot"),
            ("qwant", "qwantify"),
            ("ahrefs", "ahrefs"),
            ("semrush", "semrush"),
            ("majestic", "mj12bot"),
            ("moz", "dotbot|rogerbot"),
            ("dataforseo", "dataforseo"),
            ("screaming-frog", "screaming frog"),
            ("openai", "gptbot|chatgpt-user|oai-searchbot"),
            (
                "anthropic",
                "claudebot|claude-user|claude-searchbot|anthropic-ai",
            ),
            ("perplexity", "perplexity"),
            ("meta", "meta-externalagent"),
            ("amazon", "amazonbot"),
            ("cohere", "cohere-ai"),
            ("common-crawl", "ccbot/"),
            ("internet-archive", "archive.org_bot|ia_archiver"),
            ("mistral", "mistralai"),
            ("w3c", "w3c_"),
            // Uptime monitors.
            ("pingdom", "pingdom"),
            ("uptimerobot", "uptimerobot"),
            ("statuscake", "statuscake"),
            ("datadog", "datadog"),
            ("newrelic", "newrelic"),
            ("site24x7", "site24x7"),
            ("better-uptime", "better uptime"),
            ("gtmetrix", "gtmetrix"),
            ("webpagetest", "ptst/"),
            // Frameworks and libraries.
            ("scrapy", "scrapy"),
            ("nutch", "nutch"),
            ("heritrix", "heritrix"),
            ("httrack", "httrack"),
            ("curl", "^curl/|libcurl|pycurl"),
            ("wget", "^wget"),
            ("aria2", "aria2/"),
            (
                "python",
                "python-requests|python-urllib|python-httpx|aiohttp/|^python/|urllib3",
            ),
            ("go", "go-http-client|fasthttp|go-resty|^colly"),
            // Apps fetch with these libraries; no person sees the page.
            ("okhttp", "okhttp"),
            ("android", "dalvik/"),
            ("apple-network", "cfnetwork/"),
            ("dart", "dart:io|^dart/"),
            (
                "java",
                "^java/|java-http-client|apache-httpclient|httpclient/|http-java-client",
            ),
            ("java", "^jersey|^jetty|^unirest|reactornetty"),
            ("node", "axios/|node-fetch|^undici|^node|^got |superagent"),
            ("deno", "^deno/"),
            ("bun", "^bun/"),
            ("php", "guzzlehttp|^php/|symfony httpclient"),
            ("wordpress", "^wordpress/"),
            (
                "ruby",
                "^ruby|^faraday|rest-client/|typhoeus|^http.rb|^mechanize",
            ),
            ("perl", "libwww-perl|^lwp|^mojolicious"),
            ("rust", "reqwest/|^hyper/|^ureq"),
            ("dotnet", "restsharp"),
            ("powershell", "powershell/"),
            ("winhttp", "winhttp"),
            ("lua", "lua-resty-http"),
            ("erlang", "^hackney"),
            ("elixir", "^req/"),
            ("httpie", "^httpie"),
            ("postman", "postmanruntime"),
            ("insomnia", "^insomnia"),
            ("k6", "^k6/"),
            ("jmeter", "jmeter"),
            ("ab", "apachebench"),
        ],
    ),
];
