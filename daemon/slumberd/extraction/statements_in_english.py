"""The expressions of the extractor ``conversation``: what follows a subject, and what it states.

An expression is matched from the beginning of what follows the subject, without adverbs and
negation. An effect is written ``predicate=reader:group``, ``predicate='words'``, ``-predicate`` for
a retraction of all objects, or ``-predicate~group`` for a retraction by the words of a group.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal, NamedTuple

Subjects = Literal["any", "speaker", "known"]
"""Who may be the subject: everybody, the speaker only, or the speaker, relatives and pets."""


class Effect(NamedTuple):
    """One thing that an expression states or takes back.

    Attributes:
        predicate: What is stated or taken back.
        retracts: Whether it is taken back.
        reader: The name of the reader of the object; empty for fixed words.
        group: The group of the expression with the object.
        words: The fixed object.
    """

    predicate: str
    retracts: bool = False
    reader: str = ""
    group: str = ""
    words: str = ""


class Expression(NamedTuple):
    """An expression, and what it states.

    Attributes:
        id: Its name in ``extracted.by``.
        when: What follows the subject.
        effects: What it states; when the first one cannot be read, it states nothing.
        negated: What it states under a negation: ``-`` takes back the first object, a predicate
            states the object with it. Empty: nothing.
        subjects: Who may be the subject.
    """

    id: str
    when: re.Pattern[str]
    effects: tuple[Effect, ...]
    negated: str
    subjects: Subjects


_BE = "(?:am|is|are)"
_BEEN = "(?:am|is|are|have been|has been)"
_HAVE = "(?:have|has)"
_O = "(?P<o>.+)"
_SINCE = "(?: (?:for|since|ever since|all my life|my whole life).*)"

# id | expression | effects | when negated | subjects
_TABLE: tuple[tuple[str, ...], ...] = (
    # home
    (
        "moved",
        r"(?:have |has )?(?:moved|relocated)(?: back| over| out| down| up| away| across| here| house)*"
        r"(?: from (?P<q>.+?))? to (?P<o>.+?)(?: from (?P<p>.+))?$",
        "lives_in=place:o; lived_in=named_place:p; lived_in=named_place:q",
        "",
        "known",
    ),
    (
        "moved_from",
        r"(?:have |has )?(?:moved|relocated) (?:here |away |over |out )?(?:from|of) (?P<o>.+)",
        "lived_in=named_place:o; -lives_in~o",
        "",
        "known",
    ),
    (
        "settled",
        r"(?:have |has )?settled(?: down)? in (?P<o>.+)",
        "lives_in=named_place:o",
        "",
        "known",
    ),
    (
        "left_for",
        r"(?:have |has )?(?:left|swapped|traded) (?P<p>[A-Z].+?) (?:for|to move to) (?P<o>[A-Z].+)",
        "lives_in=named_place:o; lived_in=named_place:p",
        "",
        "known",
    ),
    (
        "lives_in",
        rf"(?:lives?|resides?|{_BEEN} (?:living|based|located|residing|settled))(?: here| out| over| down| up)?"
        r" (?:in|out of) (?P<o>.+)",
        "lives_in=place:o",
        "-lived_in",
        "any",
    ),
    (
        "has_lived_in",
        rf"{_HAVE} lived (?:here )?in (?P<o>.+?){_SINCE}$",
        "lives_in=place:o",
        "",
        "known",
    ),
    (
        "lived_in",
        r"(?:lived|was living|were living) in (?P<o>.+)",
        "lived_in=place:o",
        "",
        "known",
    ),
    ("calls_home", r"calls? (?P<o>.+?) home$", "lives_in=named_place:o", "", "known"),
    (
        "lives_with",
        rf"(?:lives?|{_BEEN} living|moved in) with (?P<o>.+?)(?: in (?P<p>[A-Z].+))?$",
        "lives_with=nouns:o; lives_in=named_place:p",
        "-",
        "known",
    ),
    # work
    (
        "works_at",
        rf"(?:works?|{_BEEN} (?:working|employed))(?: part[- ]time| full[- ]time| remotely)? (?:at|for|with) (?P<o>.+)",
        "works_at=employer:o",
        "-worked_at",
        "any",
    ),
    (
        "works_as_at",
        rf"(?:works?|{_BEEN} (?:working|employed)) as (?P<o>.+?) (?:at|for|with) (?P<p>.+)",
        "job=job:o; works_at=employer:p",
        "",
        "known",
    ),
    (
        "works_as",
        rf"(?:works?|{_BEEN} (?:working|employed)) as (?P<o>.+)",
        "job=job:o",
        "-",
        "known",
    ),
    (
        "works_in",
        rf"(?:works?|{_BEEN} working|have a job|has a job) in (?P<o>.+)",
        "works_in=field:o",
        "-",
        "known",
    ),
    (
        "started_at",
        r"(?:have |has )?(?:started|begun|began)(?: a)?(?: new| working)?(?: (?:job|role|position))?(?: working)? (?:at|with|for) (?P<o>.+)",
        "works_at=named_employer:o",
        "",
        "known",
    ),
    (
        "started_as",
        r"(?:have |has )?(?:started|begun|began)(?: a)?(?: new| working)?(?: (?:job|role|position))? as (?P<o>.+?)(?: (?:at|with) (?P<p>.+))?$",
        "job=job:o; works_at=named_employer:p",
        "",
        "known",
    ),
    (
        "got_job_at",
        r"(?:have |has )?(?:got|gotten|landed|found|took|taken|accepted|have|has|started|begun)(?: a| an| the| my)?(?: \w+){0,2} (?:job|role|position|offer|gig)"
        r"(?: as (?P<p>.+?))? (?:at|with|from|for) (?P<o>.+)",
        "works_at=named_employer:o; job=job:p",
        "",
        "known",
    ),
    (
        "got_job_as",
        r"(?:have |has )?(?:got|gotten|landed|found|took|taken|accepted|have|has|started|begun)(?: a| an| the| my)?(?: \w+){0,2} (?:job|role|position|gig)"
        r" as (?P<o>.+)",
        "job=job:o",
        "",
        "known",
    ),
    (
        "hired_by",
        r"(?:got|was|have been|has been) hired (?:by|at) (?P<o>.+?)(?: as (?P<p>.+))?$",
        "works_at=employer:o; job=job:p",
        "",
        "known",
    ),
    (
        "joined",
        r"(?:have |has )?joined (?P<o>.+?)(?: as (?P<p>.+))?$",
        "works_at=company:o; job=job:p",
        "",
        "known",
    ),
    (
        "joined_group",
        r"(?:have |has )?(?:joined|am in|is in|am part of) (?P<o>(?:a|an|the|my|our) .*(?:club|choir|team|gym|band|orchestra|group|league|church|society|union|class)\b.*)",
        "member_of=noun:o",
        "",
        "known",
    ),
    (
        "switched_jobs",
        r"(?:have |has )?(?:(?:switched|changed|moved) (?:jobs|companies|employers)"
        r"(?: from)? (?P<p>.+?) to|left (?P<q>.+?) (?:for|to join|to work (?:at|for)))"
        r" (?P<o>[A-Z].+)",
        "works_at=company:o; worked_at=company:p; worked_at=company:q",
        "",
        "known",
    ),
    (
        "changed_jobs",
        r"(?:have |has )?(?:switched|changed) (?:jobs|companies|employers|careers)(?: (?:to|and) (?:\w+ )?(?:at )?(?P<o>.+))?$",
        "-works_at; works_at=named_employer:o",
        "",
        "known",
    ),
    (
        "worked_at",
        r"(?:worked|was working|were working)(?: part[- ]time)? (?:at|for) (?P<o>.+)",
        "worked_at=employer:o",
        "",
        "known",
    ),
    (
        "second_job",
        rf"(?:have|has|got|took|{_BE} working)(?: on)? (?:a|another) (?:second|side|weekend|part[- ]time) (?:job|gig) (?:at|with|in) (?P<o>.+)",
        "works_also_at=employer:o",
        "",
        "known",
    ),
    (
        "left_job",
        r"(?:have |has )?(?:quit|left|resigned from|lost|gave up|given up)(?: from)? (?:my|his|her|the) (?:old |current |full-time |day |corporate |last )?(?:job|position|role|work)"
        r"(?: (?:at|with) (?P<o>.+?))?(?: (?:as|to|for|last|this|because|in|and|on|after|today|yesterday)\b.*)?$",
        "-works_at; worked_at=employer:o",
        "",
        "known",
    ),
    (
        "left_company",
        r"(?:have |has )?(?:quit|left|resigned from) (?P<o>[A-Z].+)",
        "worked_at=company:o; -works_at~o; -lives_in~o",
        "",
        "known",
    ),
    (
        "laid_off",
        r"(?:got|was|were|have been|has been|am|is) (?:fired|laid off|sacked|let go|made redundant)(?: (?:from|by|at) (?P<o>.+))?",
        "-works_at; worked_at=named_employer:o",
        "",
        "known",
    ),
    (
        "resigned",
        r"(?:have |has )?(?:resigned|handed in (?:my|his|her) notice|quit)(?: (?:last|this|yesterday|today|on|in)\b.*)?$",
        "-works_at",
        "",
        "known",
    ),
    (
        "unemployed",
        rf"{_BE} (?:unemployed|jobless|out of work|between jobs)\b",
        "job='unemployed'; -works_at",
        "-",
        "known",
    ),
    (
        "retired",
        r"(?:am |is |are |have |has |got )?retired(?! (?:the|my|it|from (?:\w+ing|football|tennis)))(?: from (?P<o>.+))?(?P<z>\b.*)$",
        "job='retired'; -works_at; worked_at=named_employer:o",
        "-",
        "known",
    ),
    (
        "self_employed",
        rf"(?:{_BE} (?:self[- ]employed|a freelancer|freelancing|my own boss)|work for myself|went freelance|started freelancing)\b(?P<o>.*)",
        "job='self-employed'; -works_at",
        "",
        "known",
    ),
    (
        "job_at",
        rf"{_BEEN} (?P<o>(?:a|an|the|now|head|chief|lead|senior|junior|one of the) .+?) (?:at|for|with) (?P<p>[A-Z].+)",
        "job=job:o; works_at=named_employer:p",
        "",
        "known",
    ),
    ("job", rf"{_BE} (?P<o>(?:a|an|the) .+)", "job=job:o", "-", "known"),
    (
        "became",
        r"(?:have |has )?(?:became|become|got promoted to|was promoted to|have been promoted to|has been promoted to|qualified as|trained as|was made|been promoted to) (?P<o>.+)",
        "job=job:o",
        "",
        "known",
    ),
    (
        "runs",
        r"(?:runs?|owns?|opened|founded|started|have started|has started|launched|have opened) (?P<o>(?:a|an|my own|my|her own|his own) .*(?:business|company|shop|startup|bakery|cafe|café|restaurant|studio|store|practice|agency|brewery|bookshop|farm|blog|podcast|channel|charity|newsletter|salon|gallery))\b",
        "started=noun:o",
        "",
        "known",
    ),
    (
        "teaches",
        r"teach(?:es)? (?P<o>.+?)(?: (?:at|in) (?P<p>[A-Z].+))?$",
        "job=subject:o; works_at=named_employer:p",
        "",
        "known",
    ),
    (
        "works_on",
        rf"{_BE} (?:writing|building|developing|working on|composing|recording|restoring|renovating) (?P<o>(?:a|an|my|our|my own) .*(?:novel|book|game|app|album|thesis|dissertation|startup|memoir|screenplay|phd|house|boat|car|song|comic|podcast|website|blog|short film|documentary))\b",
        "works_on=noun:o",
        "",
        "known",
    ),
    # study
    (
        "studies_at",
        rf"(?:stud(?:y|ies)(?: .+?)?|{_BEEN} (?:studying(?: .+?)?|enrolled(?: in .+?)?|a (?:\w+ ){{0,3}}student|a (?:freshman|sophomore|junior|senior))|go|goes|attends?|got into|got accepted (?:to|into|at)|am doing my (?:phd|masters|master's|degree)(?: in .+?)?)"
        r"(?: at| to| in)? (?P<o>(?:the )?(?:[A-Z][\w'.&-]* )*(?:University|College|School|Institute|Academy|Uni|MIT|UCLA|NYU|USC|ETH|Oxford|Cambridge|Stanford|Harvard|Yale|Princeton|Berkeley)\b(?: of [A-Z]\w+(?: [A-Z]\w+)?)?)",
        "studies_at=named_employer:o",
        "-",
        "known",
    ),
    (
        "studies",
        rf"(?:{_BEEN} (?:studying|majoring in|doing a (?:degree|master'?s|phd) in|doing my (?:degree|master'?s|phd) in|pursuing a (?:degree|master'?s|phd) in)|majors? in|stud(?:y|ies)|(?:switched|changed) (?:my )?major to|(?:am|is) a .+? (?:major|student) in) (?P<o>.+)",
        "studies=study:o",
        "-",
        "known",
    ),
    ("major", rf"{_BE} (?:a|an) (?P<o>.+?) (?:major|student)$", "studies=study:o", "-", "known"),
    (
        "studied",
        r"(?:studied|majored in|have a (?:degree|master'?s|phd|bachelor'?s) in|did (?:a|my) (?:degree|master'?s|phd|bachelor'?s) in|got (?:a|my) (?:degree|master'?s|phd|bachelor'?s) in) (?P<o>.+?)(?: (?:at|from) (?P<p>.+))?$",
        "studied=study:o",
        "",
        "known",
    ),
    (
        "graduated_from",
        r"(?:have |has )?graduated from (?P<o>.+)",
        "graduated_from=school:o; -studies_at=school:o",
        "",
        "known",
    ),
    (
        "graduated",
        r"(?:have |has )?(?:graduated|dropped out|finished (?:uni|university|college|school|my degree|my studies))\b(?! from| with)(?: of (?P<o>.+))?",
        "-studies_at; -studies",
        "",
        "known",
    ),
    (
        "learning",
        rf"(?:{_BE} (?:learning|taking up|teaching myself)|(?:have |has )?(?:started|begun|began)(?: learning)?|learn|learns)(?: how)?(?: to (?:play|speak|learn))?(?: the)? (?P<o>.+)",
        "learning=skill:o",
        "-",
        "known",
    ),
    (
        "lessons",
        rf"(?:{_BE} taking|takes?|(?:have |has )?(?:started|signed up for|begun|began)|{_HAVE}|am doing|am having) (?P<o>.+?) (?:lessons|classes)\b",
        "learning=lesson:o",
        "-",
        "known",
    ),
    (
        "volunteers_at",
        rf"(?:volunteers?|{_BE} volunteering|{_HAVE} started volunteering|started volunteering) (?:at|with|for) (?P<o>.+)",
        "volunteers_at=employer:o",
        "-",
        "known",
    ),
    (
        "member_of",
        rf"(?:{_BE} (?:a|an active|a proud) member of|belongs? to|{_BE} in) (?P<o>(?:a|an|the|my|our) .*(?:club|choir|team|band|orchestra|league|church|society|union|group)\b.*)",
        "member_of=noun:o",
        "-",
        "known",
    ),
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
        r"(?:have |has )?(?:changed|legally changed) (?:my|her|his) name (?:from .+? )?to (?P<o>[A-Z].+)",
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
        rf"{_BE} (?P<o>\d{{1,3}}|[a-z]+(?:[- ][a-z]+)?)(?: (?:years? old|years of age|yo|y/o|yrs old)\b.*|(?: now)?$)",
        "age=age:o",
        "",
        "known",
    ),
    ("aged", rf"{_BE} (?:a|an) (?P<o>\d{{1,3}})[- ]years?[- ]old\b", "age=age:o", "", "known"),
    (
        "turned",
        r"(?:have |has )?turned (?P<o>\d{1,3}|[a-z]+(?:[- ][a-z]+)?)(?: (?:years old|last|this|yesterday|today|on|in|recently|two|a)\b.*)?$",
        "age=age:o",
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
        r"(?:grew up|was raised|were raised|spent my childhood) (?:mostly |partly )?in (?P<o>.+)",
        "grew_up_in=place:o",
        "",
        "known",
    ),
    (
        "nationality",
        rf"{_BE} (?:a |an |half |part |originally |originally a |native )?(?P<o>.+)",
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
        "religion",
        rf"(?:{_BE}|became|have become|was raised|converted to|have converted to|has converted to) (?:a |an |a practi[sc]ing |practi[sc]ing |devout )?(?P<o>.+)",
        "religion=religion:o",
        "-",
        "known",
    ),
    (
        "height",
        rf"{_BE} (?:about )?(?P<o>\d(?:'|\.| ?ft ?| feet ?| foot ?)\d{{0,2}}\"?(?: ?m| inches)?|\d{{3}} ?cm|\d ?m ?\d\d)(?: tall)?\b",
        "height=phrase:o",
        "",
        "known",
    ),
    (
        "handedness",
        rf"{_BE} (?:a )?(?P<o>left|right)(?:-| )?hande[dr]r?\b(?P<z>.*)",
        "handedness=handed:o",
        "",
        "known",
    ),
    (
        "trait",
        rf"{_BE} (?P<o>(?:a |an |more of an? |such an? |a bit of an? |a total |a huge |a real |quite an? |the )?.+)",
        "trait=trait:o",
        "-",
        "known",
    ),
    (
        "speaks",
        rf"(?:speaks?|{_BE} fluent in|{_BE} bilingual in|knows?|learned|learnt|know how to speak|can speak|cannot speak) (?:fluent |some |a little |a bit of |both |conversational |basic |native )?(?P<o>.+)",
        "speaks=language:o",
        "-",
        "known",
    ),
    # people
    (
        "dead_spouse",
        r"(?:am|is) (?:a )?(?:widow|widower|widowed)\b",
        "marital_status='widowed'; -partner",
        "",
        "known",
    ),
    (
        "married_to",
        rf"(?:(?:have |has )?(?:got |gotten )?married|{_BE} married)(?: to)? (?P<o>[A-Z].+)",
        "partner=names:o; marital_status='married'",
        "",
        "known",
    ),
    (
        "engaged_to",
        rf"(?:(?:have |has )?got engaged|{_BE} engaged) to (?P<o>[A-Z].+)",
        "partner=names:o; marital_status='engaged'",
        "",
        "known",
    ),
    (
        "divorced",
        r"(?:(?:have |has )?(?:got|gotten)|am|is|are|was|have been) divorced\b(?P<z>.*)",
        "marital_status='divorced'; -partner",
        "-",
        "known",
    ),
    (
        "separated",
        r"(?:(?:have |has )?(?:separated|split up|broken up|broke up|split)|am separated|are separated)(?: (?:with|from) (?P<o>.+))?(?: (?:last|this|a|two|in|after|recently|for)\b.*)?$",
        "marital_status='single'; -partner",
        "",
        "known",
    ),
    (
        "ended_it",
        r"(?:have |has )?(?:dumped|left|divorced) (?:my|his|her) (?P<o>wife|husband|boyfriend|girlfriend|fiancee?|fiancée?|partner)\b(?P<z>.*)",
        "marital_status='single'; -partner",
        "",
        "known",
    ),
    (
        "married",
        rf"(?:(?:have |has )?(?:got |gotten )married|{_BEEN} married|tied the knot|eloped)\b(?! (?:to (?:my job|my work)|in the))(?P<z>.*)",
        "marital_status='married'",
        "-",
        "known",
    ),
    (
        "engaged",
        rf"(?:(?:have |has )?(?:got|gotten) engaged|{_BE} engaged)\b(?! (?:in|with))(?P<z>.*)",
        "marital_status='engaged'",
        "-",
        "known",
    ),
    (
        "single",
        rf"{_BE} (?:single|unmarried)\b(?! (?:mom|mum|dad|mother|father|parent|child|handed))(?: again)?(?P<z>.*)",
        "marital_status='single'; -partner",
        "-",
        "known",
    ),
    (
        "dating",
        rf"(?:{_BEEN} (?:dating|seeing|going out with|in a relationship with)|(?:have |has )?(?:started|begun) (?:dating|seeing)|met my) (?:(?:a|this) (?:\w+ )?(?:guy|girl|man|woman|boy|lady|someone|somebody) (?:named|called) )?(?P<o>[A-Z].+)",
        "partner=names:o; marital_status='in a relationship'",
        "",
        "known",
    ),
    (
        "in_relationship",
        rf"{_BEEN} (?:in a (?:\w+ )?relationship|dating (?:someone|somebody)|seeing (?:someone|somebody))\b(?P<z>.*)",
        "marital_status='in a relationship'",
        "-",
        "known",
    ),
    (
        "children",
        rf"(?:{_HAVE}|{_HAVE} got|{_BE} (?:a |the )?(?:proud |single |busy )?(?:mom|mum|mother|father|dad|parent|parents)(?: of| to)) (?P<o>\w+) (?:\w+ )?(?:kids?|children|boys|girls|daughters|sons|kiddos)\b(?P<z>.*)",
        "children=count:o",
        "",
        "known",
    ),
    (
        "parent_of",
        rf"{_BE} (?:a |the )?(?:proud |single |busy )?(?:mom|mum|mother|father|dad|parent|parents)(?: of| to) (?P<o>two|three|four|five|six|\d)\b",
        "children=count:o",
        "",
        "known",
    ),
    (
        "has_child",
        rf"(?:{_HAVE}(?: got| had)?|had|adopted|have adopted|welcomed) (?:a|an|one|our|my)(?: new| baby| first| second| little| older| younger| toddler| teenage| grown| newborn|,)* (?:\d{{1,2}}[- ](?:year|month|week)[- ]old )?(?:baby )?(?P<o>son|daughter|boy|girl|baby|toddler)\b(?:,? (?:named|called) (?P<p>.+))?",
        "has_child=child:o",
        "",
        "known",
    ),
    (
        "no_children",
        rf"(?:{_HAVE}) (?:no|any) (?:kids|children)\b(?P<z>.*)",
        "children='none'",
        "",
        "known",
    ),
    (
        "siblings",
        rf"(?:{_HAVE}(?: got)?) (?P<o>(?:a|an|one|two|three|four|five|six|\d)\b(?: older| younger| twin| little| big| half| step|-)*[ -]?(?:brothers?|sisters?|siblings?)(?: and (?:a|an|one|two|three|four|\d)\b(?: older| younger| twin| little| big| half)* (?:brothers?|sisters?))?)\b(?:,? (?:named|called) (?P<p>.+))?",
        "has_sibling=siblings:o",
        "",
        "known",
    ),
    (
        "pregnant",
        rf"{_BE} (?:\w+ (?:weeks|months) )?(?P<o>pregnant)\b",
        "health=health:o",
        "-",
        "known",
    ),
    # pets
    (
        "pet",
        rf"(?:{_HAVE}(?: got)?|owns?|(?:have |has )?(?:got|adopted|bought|rescued|fostered|brought home)|got myself|got ourselves) (?P<o>(?:a|an|one|two|three|four|five|six|\d|another|our|my|some)\b.+)",
        "has_pet=pet:o",
        "-",
        "any",
    ),
    (
        "lost_pet",
        r"(?:have |has )?(?:(?:had to )?(?:put|give|gave|gave away|rehomed?|lost|buried|said goodbye to|sold|euthani[sz]ed?)) (?:away |down |up )?(?P<o>(?:my|our) .+?)(?: (?:down|away|up|to sleep|last|this|yesterday|today|because|after|for)\b.*)?$",
        "-pet~o",
        "",
        "known",
    ),
    (
        "lost_named_pet",
        r"(?:had to )?(?:put|have put) (?P<o>[A-Z]\w+) (?:down|to sleep)",
        "-pet_name~o",
        "",
        "known",
    ),
    # body, food
    (
        "diet",
        rf"(?:{_BEEN}|went|goes|go|(?:have |has )?(?:become|became|turned|gone)|eat|eats|keeps?|{_BE} eating|follows?|switched to|{_BE} on|{_BE} doing|stays?|{_BE} following)(?: back)?(?: to)?(?: being)? (?:a |an |strictly |fully |mostly |the )?(?P<o>.+?)(?: diet)?$",
        "diet=diet:o",
        "-",
        "any",
    ),
    (
        "quit_diet",
        r"(?:have |has )?(?:quit|stopped|gave up|given up) (?:being |eating |going )?(?:a |an )?(?P<o>vegan|vegetarian|pescatarian|keto|veganism|vegetarianism|paleo|kosher|halal)\b(?P<z>.*)",
        "-diet",
        "",
        "known",
    ),
    (
        "eats_meat_again",
        r"(?:(?:am back to|is back to|went back to) eating|(?:eats?|am eating|is eating|started eating|have started eating)(?=.* (?:again|now))) (?P<o>meat|fish|chicken|dairy|eggs)",
        "-diet; eats=food:o; -avoids~o",
        "",
        "known",
    ),
    (
        "allergic_to",
        rf"{_BEEN} (?:\w+ )?(?:allergic|intolerant) to (?P<o>.+)",
        "allergic_to=allergens:o",
        "-",
        "any",
    ),
    (
        "allergy",
        rf"(?:{_HAVE}(?: got)?|developed|have developed|suffer from|suffers from) (?:a |an |got )?(?:severe |bad |mild |serious |terrible |slight )?(?P<o>\w+(?:[ -]\w+)?) allerg(?:y|ies)\b",
        "allergic_to=allergens:o",
        "-",
        "any",
    ),
    (
        "allergy_to",
        rf"(?:{_HAVE}(?: got)?|developed|have developed|suffer from) (?:a |an )?(?:severe |bad |mild |serious |terrible |slight )?allerg(?:y|ies) to (?P<o>.+)",
        "allergic_to=allergens:o",
        "-",
        "any",
    ),
    (
        "outgrew",
        r"(?:have |has )?(?:outgrew|outgrown|got over|grew out of|got rid of) (?:my|his|her) (?P<o>.+?) allergy\b",
        "-allergic_to~o",
        "",
        "known",
    ),
    (
        "health",
        rf"(?:{_HAVE}(?: got| had| developed)?|{_BEEN}|suffers? from|{_BEEN} (?:suffering from|diagnosed with|dealing with)|(?:was|got|have been|has been) diagnosed (?:with|as)|developed|struggles? with|live with|lives with) (?P<o>(?:a |an )?.+)",
        "health=health:o",
        "-",
        "known",
    ),
    (
        "diagnosed",
        r"(?:was|were|got|have been|has been|am|is) (?:recently |just )?diagnosed (?:with|as) (?P<o>.+)",
        "health=nouns:o",
        "",
        "known",
    ),
    (
        "recovered",
        r"(?:have |has )?(?:recovered from|beat|beaten|got over|am free of|no longer suffer from|am cured of|was cured of) (?:my |the )?(?P<o>.+)",
        "-health~o",
        "",
        "known",
    ),
    (
        "broke_bone",
        r"(?:have |has )?(?:broke|broken|fractured|sprained|tore|torn) (?:my|his|her) (?P<o>(?:left |right )?(?:arm|leg|wrist|ankle|foot|hand|toe|finger|collarbone|hip|nose|knee|acl|elbow|rib|shoulder|thumb))\b",
        "health=injury:o",
        "",
        "known",
    ),
    (
        "medication",
        rf"(?:takes?|{_BEEN} (?:on|taking)|uses?|(?:was|have been|has been|am|is|got) prescribed|(?:have |has )?started (?:taking|on)?|switched (?:from (?P<p>.+?) )?to) (?P<o>.+)",
        "medication=medication:o; -medication~p",
        "-",
        "known",
    ),
    (
        "quit_medication",
        r"(?:have |has )?(?:stopped|quit|came off|come off|am off|went off|gave up)(?: taking| using)? (?:my |the )?(?P<o>.+)",
        "-medication=medication:o",
        "",
        "known",
    ),
    (
        "quit_drinking",
        r"(?:have |has )?(?:quit|stopped|gave up|given up|cut out) drinking(?: (?P<o>.+))?$",
        "avoids=drunk:o",
        "",
        "known",
    ),
    (
        "gave_up",
        r"(?:have |has )?(?:quit|stopped|gave up|given up|cut out|went off)(?: eating| drinking| having)? (?P<o>.+)",
        "avoids=consumed:o; -eats~o; -drinks~o",
        "",
        "known",
    ),
    (
        "quit_smoking",
        r"(?:have |has )?(?:quit|stopped|gave up|given up) (?P<o>smoking|vaping)\b(?P<z>.*)",
        "-habit~o; -trait='smoker'",
        "",
        "known",
    ),
    (
        "quit_habit",
        r"(?:have |has )?(?:quit|stopped|gave up|given up) (?:doing |playing |going )?(?P<o>(?!crying|laughing|talking|trying|being|thinking|working|texting|caring|worrying|feeling|seeing|using|watching|buying|asking|getting|having|wearing|believing|living|on|my|the job|hope|after|for|because|when|at|by|it|now|and|in|to )[\w].+)",
        "-activity~o",
        "",
        "known",
    ),
    (
        "smokes",
        r"(?:smokes?|vapes?|started (?:smoking|vaping)|took up (?:smoking|vaping))\b(?P<o>.*)",
        "habit='smoking'",
        "-",
        "known",
    ),
    ("drinks_nothing", r"drinks?(?: any)? ?(?:alcohol)?$", "drinks='alcohol'", "avoids", "known"),
    (
        "drinks",
        rf"(?:drinks?|{_BE} drinking|started drinking|have started drinking|only drinks?|went back to) (?P<o>.+)",
        "drinks=drink:o",
        "avoids",
        "known",
    ),
    (
        "eats",
        rf"(?:eats?|started eating|have started eating|eats? mostly) (?P<o>.+)",
        "eats=food:o",
        "avoids",
        "known",
    ),
    (
        "avoids",
        rf"(?:avoids?|stays? away from|cannot (?:eat|drink|have|tolerate)|{_BE} avoiding|{_BE} off|stays? off) (?P<o>.+)",
        "avoids=consumed:o",
        "",
        "known",
    ),
    # taste
    (
        "prefers",
        r"(?:prefers?|would prefer) (?P<o>.+?)(?: (?:to|over|rather than|instead of|than) .+)?$",
        "prefers=things:o",
        "",
        "known",
    ),
    (
        "prefers_more",
        r"likes? (?P<o>.+?) (?:better than|more than) .+",
        "prefers=things:o",
        "",
        "known",
    ),
    (
        "likes_doing",
        r"(?:loves?|likes?|enjoys?|adores?) to (?P<o>.+)",
        "likes=activity:o",
        "dislikes",
        "known",
    ),
    (
        "likes",
        rf"(?:loves?|likes?|enjoys?|adores?|{_BEEN} (?:a )?(?:big |huge |massive |real |great )?fans? of|{_BEEN} (?:(?:really|totally|super|very|so|big) )*(?:into|interested in|obsessed with|fond of|keen on|crazy about|addicted to|passionate about|a sucker for)|got into|have gotten into|{_HAVE} a (?:thing|passion|soft spot) for|cannot get enough of|cannot live without) (?P<o>.+)",
        "likes=things:o",
        "dislikes",
        "known",
    ),
    (
        "dislikes",
        r"(?:hates?|dislikes?|detests?|despises?|loathes?|cannot (?:stand|bear)|am sick of|(?:have )?gone off) (?P<o>.+)",
        "dislikes=things:o",
        "",
        "known",
    ),
    (
        "fears",
        rf"(?:{_BE} (?:\w+ )?(?:afraid|scared|terrified|frightened) of|{_HAVE} (?:a|an) (?:\w+ )?(?:fear|phobia) of|fears?) (?P<o>.+)",
        "fears=things:o",
        "-",
        "known",
    ),
    (
        "supports",
        r"(?:supports?|roots? for|am rooting for|have supported) (?P<o>(?:the )?[A-Z].+)",
        "supports=team:o",
        "-",
        "known",
    ),
    (
        "fan_of_team",
        rf"{_BE} (?:a|an) (?:\w+ )?(?P<o>[A-Z][\w .'-]+?) (?:fan|supporter)\b",
        "supports=team:o",
        "-",
        "known",
    ),
    (
        "listens_to",
        rf"(?:listens?|{_BE} listening) to (?P<o>.+)",
        "listens_to=heard:o",
        "",
        "known",
    ),
    (
        "watching",
        rf"(?:{_BEEN} (?:watching|binge-watching|binging|rewatching|re-watching)|(?:have )?started watching) (?P<o>.+)",
        "watching=title:o",
        "",
        "known",
    ),
    (
        "reading",
        rf"(?:{_BEEN} (?:reading|rereading|re-reading)|(?:have )?started reading) (?P<o>.+)",
        "reading=title:o",
        "",
        "known",
    ),
    (
        "finished_reading",
        r"(?:have |has )?(?:finished|gave up on)(?: reading| watching)? (?P<o>[A-Z].+)",
        "-reading~o; -watching~o",
        "",
        "known",
    ),
    (
        "collects",
        rf"(?:collects?|{_BE} collecting|started collecting) (?P<o>.+)",
        "collects=nouns:o",
        "-",
        "known",
    ),
    (
        "plays",
        rf"(?:plays?|{_BEEN} playing|(?:have |has )?(?:started playing|took up|taken up)) (?:the )?(?P<o>.+)",
        "plays=plays:o",
        "-",
        "known",
    ),
    (
        "hobby",
        r"(?:took up|have taken up|has taken up|got into|picked up|have picked up|got back into) (?P<o>.+)",
        "hobby=pastime:o",
        "",
        "known",
    ),
    (
        "practises",
        r"(?:practi[cs]es?|does|do) (?P<o>(?:yoga|pilates|karate|judo|crossfit|ballet|taekwondo|tai chi|gymnastics|boxing|kickboxing|pottery|ceramics|calligraphy|meditation|archery|fencing|aikido|jiu-jitsu|stand-up comedy|improv|parkour|photography|embroidery|triathlons|marathons|crossword puzzles|crosswords)\b)",
        "hobby=phrase:o",
        "-",
        "known",
    ),
    # things
    (
        "owns",
        rf"(?:(?:have|has|owns?|drives?|rides?|bought|got|(?:have |has )?(?:bought|gotten)|picked up|{_BE} driving) (?:myself |ourselves )?)(?P<o>(?:a|an|two|three|my own|our own|another)\b.+)",
        "owns=owned:o",
        "-",
        "known",
    ),
    (
        "traded",
        r"(?:have |has )?(?:traded(?: in)?|swapped|replaced|exchanged) (?:my|our|the) (?P<p>.+?) (?:for|with) (?P<o>.+)",
        "owns=owned:o; -owns~p",
        "",
        "known",
    ),
    (
        "sold",
        r"(?:have |has )?(?:sold|got rid of|gave away|donated|lost|crashed|scrapped|returned|totaled|totalled) (?:my|our|the) (?P<o>.+)",
        "-owns=owned:o",
        "",
        "known",
    ),
    (
        "switched_to",
        r"(?:have |has )?(?:switched|changed|migrated|moved)(?: over)? from (?P<p>.+?) to (?P<o>.+)",
        "uses=tool:o; -uses~p",
        "",
        "speaker",
    ),
    (
        "uses",
        rf"(?:uses?|{_BE} using|(?:have |has )?(?:started using|switched(?: over)? to)) (?P<o>[A-Z].+)",
        "uses=tool:o",
        "-",
        "speaker",
    ),
    # time
    (
        "visited",
        r"(?:have |has )?(?:visited|went to|been to|travell?ed to|been in|went on holiday to|vacationed in|backpacked (?:through|across)|flew to) (?P<o>(?:the )?[A-Z].+)",
        "visited=trip:o",
        "",
        "known",
    ),
    (
        "wants",
        r"(?:want|wants|would (?:really |absolutely |so )?(?:love|like)|hope|hopes|dream of|am hoping|am planning|plan) to (?P<o>(?:visit|learn|buy|become|move|travel|see|study|adopt|write|start|open|run|climb|go to|get a|get an|have kids|retire|live|build|quit|change|publish|own) .+)",
        "wants=wish:o",
        "-",
        "known",
    ),
)


_EFFECT = re.compile(
    r"(?P<sign>-?)(?P<predicate>\w+)(?:='(?P<words>[^']+)'|=(?P<reader>\w+):(?P<group>\w)"
    r"|~(?P<by>\w+))?"
)


def _effect(text: str) -> Effect:
    match = _EFFECT.fullmatch(text)
    assert match is not None, text
    parts = match.groupdict()
    return Effect(
        parts["predicate"],
        bool(parts["sign"]),
        parts["reader"] or "",
        parts["group"] or parts["by"] or "",
        parts["words"] or "",
    )


@cache
def expressions() -> tuple[Expression, ...]:
    """Return the expressions, in the order in which they are tried."""
    return tuple(
        Expression(
            id,
            re.compile(when, re.IGNORECASE if "[A-Z]" not in when else 0),
            tuple(map(_effect, effects.split("; "))),
            negated,
            subjects,  # type: ignore[arg-type]  # the table gives no other word
        )
        for id, when, effects, negated, subjects in _TABLE
    )
