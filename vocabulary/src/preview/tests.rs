use super::*;

const FULL: &str = "t11:Summer saled23:Up to 50% off until Mayi27:https://e.com/sale-1200.png";

fn is_preview(text: &str) -> bool {
    Preview::parse(text.as_bytes()).is_some()
}

/// A preview with these parts, as they are.
fn with(title: &str, description: &str, image: &str) -> Vec<u8> {
    let mut text = Vec::new();
    Preview {
        title,
        description,
        image,
    }
    .write(&mut text);
    text
}

#[test]
fn a_preview_is_read_as_it_is_written() {
    let preview = Preview::parse(FULL.as_bytes()).expect("a preview");
    assert_eq!(
        preview,
        Preview {
            title: "Summer sale",
            description: "Up to 50% off until May",
            image: "https://e.com/sale-1200.png",
        }
    );
    let mut written = Vec::new();
    preview.write(&mut written);
    assert_eq!(written, FULL.as_bytes());
    for text in ["t5:Títl", "t5:Títld1:ä", "t1:aq3:anyi14:https://e.com/"] {
        let is_whole = !text.ends_with('ä');
        assert_eq!(is_preview(text), is_whole, "{text}");
    }
}

#[test]
fn a_preview_has_a_title_and_nothing_beyond_its_bounds() {
    for text in [
        "",
        "t0:",
        "d1:a",
        "t1:ad0:",
        "t1:ai0:",
        "t1:at1:b",
        "t1:a\n",
        "t1:\n",
        "t1:\u{7f}",
        "t2:\u{85}",
        "t1:ad1:\t",
        "t1:ai13:http://e.com/",
        "t1:ai8:https://",
        "t1:ai16:https://e.com/ a",
        "t1:ai16:data:image/png,a",
        "1:a",
    ] {
        assert!(!is_preview(text), "{text}");
    }
    assert!(Preview::parse(b"t1:\xff").is_none());
    let image = |length: usize| format!("https://e.com/{}", "a".repeat(length - 14));
    let is_read = |title: usize, description: usize, length: usize| {
        let (title, description) = ("ä".repeat(title), "😀".repeat(description));
        Preview::parse(&with(&title, &description, &image(length))).is_some()
    };
    assert!(is_read(200, 500, 2048));
    assert!(!is_read(201, 500, 2048));
    assert!(!is_read(200, 501, 2048));
    assert!(!is_read(200, 500, 2049));
}

#[test]
fn a_page_shows_texts_and_never_means_them() {
    let preview = Preview {
        title: "\"><script>alert('1')</script>",
        description: "a & b",
        image: "https://e.com/a.png?b=1&c='\"",
    };
    let page = preview.page(
        "https://s.example.com/a<b",
        "https://e.com/?a=1&b=\"'<>;url=x",
    );
    for part in [
        "<title>&quot;&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;</title>",
        "<meta property=\"og:title\" content=\"&quot;&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;\">",
        "<meta property=\"og:description\" content=\"a &amp; b\">",
        "<meta property=\"og:image\" content=\"https://e.com/a.png?b=1&amp;c=&#39;&quot;\">",
        "<meta property=\"og:url\" content=\"https://s.example.com/a&lt;b\">",
        "<meta name=\"twitter:card\" content=\"summary_large_image\">",
        "<meta http-equiv=\"refresh\" content=\"0; url=https://e.com/?a=1&amp;b=&quot;&#39;&lt;&gt;;url=x\">",
        "<a href=\"https://e.com/?a=1&amp;b=&quot;&#39;&lt;&gt;;url=x\">&quot;&gt;&lt;script",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    let tags = page.matches('<').count();
    let short = Preview {
        title: "Sale",
        description: "",
        image: "",
    };
    let page = short.page("", "https://e.com/");
    assert!(page.contains("content=\"summary\""), "{page}");
    for missing in ["og:url", "og:image", "escription"] {
        assert!(!page.contains(missing), "{page}");
    }
    // Each of the four parts that are missing is one tag.
    assert_eq!(page.matches('<').count(), tags - 4);
}

#[test]
fn preview_agents_are_found_anywhere_in_any_case() {
    for agent in [
        "facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)",
        "Mozilla/5.0 (Macintosh) AppleWebKit/601.2.4 Safari/601.2.4 facebookexternalhit/1.1 Facebot Twitterbot/1.0",
        "WhatsApp/2.23.20.0",
        "whatsapp/2",
        " Viber/13.0",
        "TelegramBot (like TwitterBot)",
        "WeChat/8.0.30 CFNetwork/1390 Darwin/22.0.0",
        "Mozilla/5.0 (Windows NT 10.0) SkypeUriPreview Preview/0.5",
        "Mozilla/5.0 (Windows NT 6.1) Snap URL Preview Service; bot; snapchat; https://developers.snap.com/robots",
        "Synapse (bot; +https://github.com/matrix-org/synapse)",
    ] {
        assert!(is_preview_agent(agent.as_bytes()), "{agent}");
    }
    for agent in [
        "",
        "W",
        "Mozilla/5.0 (Linux; Android 14) Chrome/126 Mobile Safari/537.36",
        "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5_1 like Mac OS X) Safari Line/14.9.0",
        "x Viber/13.0",
        "WeChat/8.0.30 Darwin/22.0.0",
        "Teams/1.6.00.12303 Electron/19.1.8",
        "curl/8.0",
    ] {
        assert!(!is_preview_agent(agent.as_bytes()), "{agent}");
    }
    // A visit has no more of a user agent.
    let late = |spaces: usize| format!("{}WhatsApp/2", "a".repeat(spaces));
    assert!(is_preview_agent(late(512 - 9).as_bytes()));
    assert!(!is_preview_agent(late(512 - 8).as_bytes()));
}

#[test]
fn every_name_is_found() {
    for (program, names) in PREVIEW_AGENTS {
        for name in names.split('|') {
            let agent: String = name.split('&').flat_map(|it| [it, " "]).collect();
            let agent = agent.replace('^', "").to_ascii_uppercase();
            assert!(is_preview_agent(agent.as_bytes()), "{program}: {agent}");
        }
    }
}
