"""The expressions of conversations about persons, relatives and pets."""

from __future__ import annotations

from slumberd.consolidation.extraction.vocabulary import BE, BEEN, HAVE

_LATER = (
    r"(?:,? (?:last|this|yesterday|today|tonight|recently|suddenly|because|after|when|due|over"
    r"|during|early|just|(?:on|in|at|to|from|for)(?! (?:a|the) (?:nap|walk|run|bath|night|bed)\b)"
    r"|an?|two|three|four|five|six|ten|\d+|some|many|few|and)\b.*)?$"
)
"""What may follow the end of a pet: when and why."""

_HAD_TO = r"(?:have |has |had )?(?:to )?"
_NEW_OWNER = (
    r"an? (?:new |good |loving |nice )*(?:home|family|couple|friend|shelter|farm)|the shelter"
    r"|(?:my|our) \w+|[A-Z]\w+"
)
_SLEEP = r"(?:down(?! (?:as|on|for|in|at)\b)|to sleep(?! (?:in|at|on)\b))"

_REMARRIED = (
    rf"(?:(?:{BE} |(?:have |has )?(?:got |gotten )?)(?:remarried\b|married (?:again"
    r"|(?:for the|a) second time))|(?:have |has )?tied the knot again\b)"
)
_CHILD = (
    r"(?:a|an|one|our|my)(?: new| baby| first| second| little| older| younger| toddler| teenage"
    r"| grown| newborn|,)* (?:\d{1,2}[- ](?:year|month|week)[- ]old )?(?:baby )?"
    r"(?P<o>son|daughter|boy|girl|baby|toddler)\b(?!-)"
)

PEOPLE: tuple[tuple[str, ...], ...] = (
    # identity
    ("called", r"(?:am|is|are) (?:called|named|known as) (?P<o>.+)", "name=names:o", "", "known"),
    (
        "goes_by",
        r"(?:go|goes|prefers to go|prefer to go|went) by (?P<o>[A-Z].+)",
        "name=names:o",
        "",
        "known",
    ),
    (
        "changed_name",
        r"(?:have |has )?(?:changed|legally changed) (?:my|her|his) name (?:from .+? )?to"
        r" (?P<o>[A-Z].+)",
        "name=names:o",
        "",
        "known",
    ),
    (
        "pronouns",
        r"(?:use|uses|go by|goes by|prefer) (?P<o>(?:she|he|they)(?:/\w+)+)(?: pronouns)?",
        "pronouns=pronouns:o",
        "",
        "known",
    ),
    (
        "age",
        rf"{BE} (?P<o>\d{{1,3}}|[a-z]+(?:[- ][a-z]+)?)(?: (?:years? old|years of age|yo|y/o"
        rf"|yrs old)\b.*|(?: now)?$)",
        "age=age:o",
        "",
        "known",
    ),
    ("aged", rf"{BE} (?:a|an) (?P<o>\d{{1,3}})[- ]years?[- ]old\b", "age=age:o", "", "known"),
    (
        "turned",
        r"(?:have |has )?(?:turned|hit|reached) (?P<o>\d{1,3}|[a-z]+(?:[- ][a-z]+)?)(?:"
        r" (?:years old|last|this|yesterday|today|on|in|recently|two|a)\b.*)?$",
        "age=age:o",
        "",
        "known",
    ),
    (
        "celebrates",
        r"celebrates? (?:my|her|his) birthday (?:on|in) (?P<o>.+)",
        "birthday=day:o",
        "",
        "known",
    ),
    (
        "born_on",
        r"(?:was|am|is|were) born (?:on )?(?P<o>(?:the )?(?:\d{1,2}|[A-Za-z]{3,9} \d{1,2}).*)",
        "birthday=day:o",
        "",
        "known",
    ),
    (
        "birth_year",
        r"(?:was|am|is|were) born in (?P<o>(?:19|20)\d\d)\b(?:,? in (?P<p>.+))?",
        "birth_year=year:o; born_in=named_place:p",
        "",
        "known",
    ),
    (
        "born_and_raised",
        r"(?:was|am|is|were) born and (?:raised|grew up|bred) in (?P<o>.+)",
        "born_in=place:o; grew_up_in=place:o",
        "",
        "known",
    ),
    ("born_in", r"(?:was|am|is|were) born in (?P<o>[A-Za-z].+)", "born_in=place:o", "-", "known"),
    (
        "from",
        r"(?:am|is|are|comes?|come|hails?) (?:originally )?from (?P<o>.+)",
        "from=place:o",
        "-",
        "known",
    ),
    (
        "grew_up_in",
        r"(?:grew up|was raised|were raised|spent my childhood)(?: mostly| partly| on an? (?:\w+ )?"
        r"(?:farm|ranch|island|estate|vineyard))? in (?P<o>.+)",
        "grew_up_in=place:o",
        "",
        "known",
    ),
    (
        "nationality",
        rf"{BE} (?:a |an |half |part |originally |originally a |native )?(?P<o>.+)",
        "nationality=nationality:o",
        "-",
        "known",
    ),
    (
        "citizen",
        r"(?:became|have become|am) (?:a|an) (?P<o>\w+(?: \w+)?) citizen",
        "nationality=nationality:o",
        "-",
        "known",
    ),
    (
        "passport",
        r"(?:have|has|hold|holds|got|have got|got granted) (?:a |an |dual )?(?P<o>[A-Z]\w+(?:"
        r" [A-Z]\w+)?)"
        r" (?:passport|citizenship|nationality)\b",
        "nationality=nationality:o",
        "-",
        "known",
    ),
    (
        "speaker_of",
        rf"{BE} an? (?:native |fluent |non-native )?(?P<o>\w+) speaker\b",
        "speaks=language:o",
        "-",
        "known",
    ),
    (
        "height",
        rf"{BE} (?:about )?(?P<o>\d(?:'|\.| ?ft ?| feet ?| foot ?)\d{{0,2}}\"?(?: ?m|"
        rf" inches)?|\d{{3}} ?cm|\d ?m ?\d\d)(?: tall)?\b",
        "height=phrase:o",
        "",
        "known",
    ),
    (
        "handedness",
        rf"{BE} (?:a )?(?P<o>left|right)(?:-| )?hande[dr]r?\b(?P<z>.*)",
        "handedness=handed:o",
        "",
        "known",
    ),
    ("lefty", rf"{BE} a (?:lefty|southpaw)\b(?P<z>.*)", "handedness='left-handed'", "", "known"),
    (
        "trait",
        rf"{BE} (?P<o>(?:a |an |more of an? |such an? |a bit of an? |a total |a huge |a real "
        rf"|quite an? |the )?.+)",
        "trait=trait:o",
        "-",
        "known",
    ),
    (
        "speaks",
        rf"(?:speaks?|(?:can )?gets? by in|{BE} fluent in|{BE} bilingual in|knows?|learned"
        rf"|learnt|know how to"
        rf" speak|can speak) (?:fluent |some |a little |a bit of |both "
        rf"|conversational |basic |native |(?:\w+ )?languages, )?(?P<o>.+)",
        "speaks=language:o",
        "-",
        "known",
    ),
    (
        "cannot_speak",
        r"cannot speak (?:fluent |any |either |a word of |both )?(?P<o>.+)",
        "-speaks=language:o",
        "",
        "known",
    ),
    # people
    (
        "lost_spouse",
        r"(?:have |has )?lost my (?P<o>wife|husband)(?P<z>$| (?:last|this|to cancer|in (?:19|20)"
        r"|(?:a|two|three|four|five|ten|\d+|many) (?:years?|months?|weeks?) ago).*)",
        "marital_status='widowed'; -partner",
        "",
        "speaker",
    ),
    (
        "dead_spouse",
        r"(?:am|is) (?:a )?(?:widow|widower|widowed)\b",
        "marital_status='widowed'; -partner",
        "",
        "known",
    ),
    (
        "married_to",
        rf"(?:(?:have |has )?(?:got |gotten )?married|{BEEN} married)(?: to)? (?P<o>[A-Z].+)",
        "partner=names:o; marital_status='married'",
        "",
        "known",
    ),
    (
        "engaged_to",
        rf"(?:(?:have |has )?got engaged|{BE} engaged) to (?P<o>[A-Z].+)",
        "partner=names:o; marital_status='engaged'",
        "",
        "known",
    ),
    (
        "divorced",
        r"(?:(?:have |has )?(?:got|gotten)|am|is|are|am a|is a|was|have been) divorced\b"
        r"(?! (?:once|twice|before|several|(?:two|three|four|\d+) times))(?P<z>.*)",
        "marital_status='divorced'; -partner",
        "-",
        "known",
    ),
    (
        "separated",
        r"(?:(?:have |has )?(?:separated|split up|broken up|broke up|split)|am separated|are"
        r" separated)(?: (?:with|from) (?P<o>.+))?(?: (?:last|this|a|two|in|after|recently"
        r"|for)\b.*)?$",
        "marital_status='single'; -partner",
        "",
        "known",
    ),
    (
        "ended_it",
        r"(?:have |has )?(?:dumped|left|divorced) (?:my|his|her) (?P<o>wife|husband|boyfriend"
        r"|girlfriend|fiancee?|fiancée?|partner)\b(?P<z>.*)",
        "marital_status='single'; -partner",
        "",
        "known",
    ),
    (
        "remarried_to",
        rf"(?:{BE} |(?:have |has )?(?:got |gotten )?)(?:remarried(?: to)?|married again to)"
        r" (?P<o>[A-Z].+)",
        "partner=names:o; marital_status='married'",
        "",
        "known",
    ),
    ("remarried", rf"{_REMARRIED}(?P<z>.*)", "marital_status='married'; -partner", "", "known"),
    ("remarried_before", rf"{_REMARRIED}(?P<z>.*)", "marital_status='married'", "", "known"),
    (
        "married",
        rf"(?:(?:have |has )?(?:got |gotten )married|{BEEN} married|tied the knot"
        rf"|eloped)\b(?! (?:to (?:my job|my work)|in the))(?P<z>.*)",
        "marital_status='married'",
        "-",
        "known",
    ),
    (
        "engaged",
        rf"(?:(?:have |has )?(?:got|gotten) engaged|{BE} engaged)\b(?! (?:in|with))(?P<z>.*)",
        "marital_status='engaged'",
        "-",
        "known",
    ),
    (
        "single",
        rf"{BE} (?:single|unmarried)\b(?! (?:mom|mum|dad|mother|father|parent|child"
        rf"|handed))(?: again)?(?P<z>.*)",
        "marital_status='single'; -partner",
        "-",
        "known",
    ),
    (
        "dating",
        rf"(?:{BEEN} (?:dating|seeing|going out with|in a relationship with)|(?:have |has"
        rf" )?(?:started|begun) (?:dating|seeing)|met my) (?:(?:a|this) (?:\w+ )?(?:guy|girl"
        rf"|man|woman|boy|lady|someone|somebody) (?:named|called) )?(?P<o>[A-Z].+)",
        "partner=names:o; marital_status='in a relationship'",
        "",
        "known",
    ),
    (
        "in_relationship",
        rf"{BEEN} (?:in a (?:\w+ )?relationship|dating (?:someone|somebody)|seeing (?:someone"
        rf"|somebody))\b(?P<z>.*)",
        "marital_status='in a relationship'",
        "-",
        "known",
    ),
    (
        "children",
        rf"(?:{HAVE}|{HAVE} got|{BE} (?:a |the )?(?:proud |single |busy )?(?:mom|mum|mother"
        rf"|father|dad|parent|parents)(?: of| to)) (?P<o>\w+) (?:\w+ )?(?:kids?|children|boys"
        rf"|girls|daughters|sons|kiddos)\b(?P<z>.*)",
        "children=count:o",
        "",
        "known",
    ),
    (
        "parent_of",
        rf"{BE} (?:a |the )?(?:proud |single |busy )?(?:mom|mum|mother|father|dad|parent"
        rf"|parents)(?: of| to) (?P<o>two|three|four|five|six|\d)\b",
        "children=count:o",
        "",
        "known",
    ),
    (
        "birth",
        rf"(?:(?:have |has )?(?:had|welcomed)|(?:gave|have given|has given) birth to) {_CHILD}",
        "has_child=child:o; -health='pregnant'",
        "",
        "known",
    ),
    (
        "has_child",
        rf"(?:{HAVE}(?: got)?|adopted|have adopted) {_CHILD}",
        "has_child=child:o",
        "",
        "known",
    ),
    (
        "no_children",
        rf"(?:{HAVE}) no (?:kids|children)\b(?P<z>.*)",
        "children='none'",
        "",
        "known",
    ),
    (
        "siblings",
        rf"(?:{HAVE}(?: got)?) (?P<o>(?:a|an|one|two|three|four|five|six|\d)\b(?: older|"
        rf" younger| twin| little| big| half| step|-)*[ -]?(?:brothers?|sisters?|siblings?)(?:"
        rf" and (?:a|an|one|two|three|four|\d)\b(?: older| younger| twin| little| big| half)*"
        rf" (?:brothers?|sisters?))?)\b(?:,? (?:named|called) (?P<p>.+))?",
        "has_sibling=siblings:o",
        "",
        "known",
    ),
    (
        "pregnant",
        rf"{BE} (?:\w+ (?:weeks|months) )?(?P<o>pregnant)\b",
        "health=health:o",
        "-",
        "known",
    ),
    # pets
    (
        "owner_of_pet",
        rf"{BE} (?:a|the) (?:proud |happy |new )?(?:owner|parent|mum|mom|dad) (?:of|to)"
        rf" (?P<o>(?:a|an|two|three)"
        rf"\b.+)",
        "has_pet=pet:o",
        "-",
        "known",
    ),
    (
        "pet",
        rf"(?:{HAVE}(?: got)?|owns?|(?:have |has )?(?:got|adopted|bought|rescued|fostered"
        rf"|brought home|taken in|took in|picked up|inherited)|got myself|got ourselves)"
        rf" (?P<o>(?:a|an|one|two|three|four|five|six|\d|another|our|my|some)\b.+)",
        "has_pet=pet:o",
        "-",
        "any",
    ),
    (
        "lost_pet",
        rf"{_HAD_TO}(?:(?:lost|lose|buried|bury|sold|sell|rehomed?|euthani[sz]ed?"
        rf"|sa(?:y|id) goodbye to|let go of|put down|g[ai]ve (?:away|up))"
        rf" (?P<o>(?:my|our|the) .+?){_LATER}"
        rf"|(?:put (?P<p>(?:my|our|the) .+?|him|her)|(?:have|had) (?P<q>(?:my|our|the) .+?|him|her)"
        rf" put) {_SLEEP}{_LATER}"
        rf"|(?:have|had) (?P<r>(?:my|our|the) .+?|him|her) euthani[sz]ed{_LATER}"
        rf"|let (?P<s>(?:my|our|the) .+?) go{_LATER}"
        rf"|g[ai]ve (?P<t>(?:my|our|the) .+?) (?:(?:away|up){_LATER}|to (?:{_NEW_OWNER})\b.*))",
        "-pet~o; -pet~p; -pet~q; -pet~r; -pet~s; -pet~t",
        "",
        "known",
    ),
    (
        "lost_named_pet",
        rf"{_HAD_TO}(?:(?:sa(?:y|id) goodbye to|lost|lose|buried|bury|rehomed?|euthani[sz]ed?)"
        rf" (?P<o>[A-Z][a-z]+){_LATER}"
        rf"|(?:put (?P<p>[A-Z][a-z]+)|(?:have|had) (?P<q>[A-Z][a-z]+) put) {_SLEEP}{_LATER})",
        "-pet_name~o; -pet_name~p; -pet_name~q",
        "",
        "known",
    ),
)
"""The id, what follows the subject, the effects, the effect of a negation, and the subjects."""
