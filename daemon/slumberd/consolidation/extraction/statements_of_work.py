"""The expressions of conversations about homes, work and studies."""

from __future__ import annotations

from slumberd.consolidation.extraction.vocabulary import BE, BEEN, HAVE, SINCE

COMPANIES = (
    "Google|Meta|Facebook|Amazon|Microsoft|IBM|Oracle|SAP|Siemens|Bosch|Deloitte|KPMG|PwC|Accenture"
    "|McKinsey|Uber|Airbnb|Stripe|Shopify|Salesforce|Philips|Ericsson|Unilever|Pfizer|Novartis|Roche"
    "|Bayer|Boeing|Airbus"
)
TOOLS = (
    "Apple|Samsung|Slack|Teams|Notion|Obsidian|Evernote|Trello|Asana|Jira|Windows|Linux|macOS|Android|iOS|Chrome"
    "|Firefox|Safari|Vim|Emacs|VS Code|PyCharm|Excel|Gmail|Outlook|Dropbox|Zoom|Spotify|WhatsApp"
    "|Signal|Telegram|Twitter|GitHub|GitLab|Jenkins|MySQL|Postgres|PostgreSQL|MongoDB|AWS|Azure"
)
"""Well-known names that stand after ``moved from`` and are no towns."""

WORK: tuple[tuple[str, ...], ...] = (
    # home
    (
        "moved_company",
        rf"(?:have |has )?(?:moved|switched|jumped)(?: over)? from (?P<q>{COMPANIES}) to"
        rf" (?P<o>[A-Z].+)",
        "works_at=company:o; worked_at=company:q",
        "",
        "known",
    ),
    (
        "moved_tool",
        rf"(?:have |has )?(?:moved|migrated)(?: over)? from (?P<p>{TOOLS}) to (?P<o>\w?[A-Z].+)",
        "uses=tool:o; -uses~p",
        "",
        "speaker",
    ),
    (
        "moved",
        r"(?:have |has )?(?:moved|relocated)(?: back| over| out| down| up| away| across| here|"
        r" house)*"
        rf"(?: from (?!(?:{COMPANIES}|{TOOLS})\b)(?P<q>.+?))? to (?!(?:{TOOLS})\b)(?P<o>.+?)(?:"
        rf" from (?P<p>.+))?$",
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
        "lives_in_home",
        rf"(?:lives?|{BEEN} living) (?:in|on) (?:a|an|the|my|our) (?:[\w-]+ ){{0,4}}(?:flat"
        rf"|apartment"
        rf"|house|room|studio|cottage|dorm|farm|loft|condo|houseboat|bungalow)"
        rf"(?: (?:with|near|on) [\w ]+?)? in (?P<o>(?:[a-z]+ )?[A-Z].+)",
        "lives_in=named_place:o",
        "-lived_in",
        "known",
    ),
    (
        "lives_near",
        rf"(?:lives?|{BEEN} (?:living|based)) (?P<o>(?:(?:just )?outside(?: of)?|near|close to)"
        rf" [A-Z].+)",
        "lives_in=near_place:o",
        "-lived_in",
        "known",
    ),
    (
        "lives_in",
        rf"(?:lives?|resides?|{BEEN} (?:living|based|located|residing|settled))(?: here| out|"
        rf" over| down| up)?"
        r" (?:in|out of) (?P<o>.+?)(?: (?:together )?with (?P<p>(?:my|our|(?-i:[A-Z])\w+|(?:\w+ )"
        r"{1,2}(?:roommate|flatmate|housemate|friend|cat|dog)s?\b).*))?$",
        "lives_in=place:o; lives_with=housemates:p",
        "-lived_in",
        "any",
    ),
    (
        "has_lived_in",
        rf"{HAVE} lived (?:here )?in (?P<o>.+?){SINCE}$",
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
    (
        "has_been_in",
        rf"{HAVE} been (?:here )?in (?P<o>.+?) (?:for .*(?:years?|months|decade)|since)\b",
        "lives_in=named_place:o",
        "",
        "known",
    ),
    ("lives_alone", r"lives? (?:alone|on my own|by myself)\b", "-lives_with", "", "speaker"),
    (
        "calls_home",
        r"(?:have |has )?call(?:s|ed)? (?P<o>.+?) home(?:$| for| since| now)",
        "lives_in=named_place:o",
        "",
        "known",
    ),
    (
        "lives_with",
        rf"(?:lives?|{BEEN} (?:living|sharing (?:a|an|my) (?:\w+ )?(?:flat|apartment|house|place"
        rf"|room))|shares? (?:a|an|my) (?:\w+ )?(?:flat|apartment|house|place|room)|moved in)"
        rf" with (?P<o>.+?)(?: in (?P<p>[A-Z].+))?$",
        "lives_with=housemates:o; lives_in=named_place:p",
        "-",
        "known",
    ),
    (
        "enjoys_living_in",
        r"(?:love|enjoy|like|hate|am enjoying|am loving) living in (?P<o>[A-Z].+)",
        "lives_in=named_place:o",
        "",
        "speaker",
    ),
    (
        "makes_home_in",
        r"(?:(?:have |has )?(?:made|make|makes) (?:my|our|her|his) home|(?:have )?ended up"
        r" living|have"
        r" settled down) in (?P<o>[A-Z].+)",
        "lives_in=named_place:o",
        "",
        "known",
    ),
    # work
    (
        "enjoys_working_at",
        r"(?:love|enjoy|like|hate|am enjoying|am loving) working (?:at|for) (?P<o>(?:the"
        r" )?[A-Z].+)",
        "works_at=company:o",
        "",
        "speaker",
    ),
    ("now_at", rf"{BE} (?:at|with) (?P<o>(?:the )?[A-Z].+)", "works_at=company:o", "", "known"),
    (
        "long_at",
        rf"{HAVE} been (?:working )?at (?P<o>(?:the )?[A-Z].+?){SINCE}$",
        "works_at=company:o",
        "",
        "known",
    ),
    (
        "student_at",
        rf"{BEEN} (?P<q>an? (?P<p>(?:[\w'-]+ ){{0,4}})student) (?:at|from|in) (?P<o>(?:the"
        rf" )?[A-Z].+)",
        "studies_at=named_employer:o; studies=studied_by:p; job=job:q",
        "-",
        "known",
    ),
    (
        "student",
        rf"{BEEN} (?P<q>an? (?P<p>(?:[\w'-]+ ){{1,4}})student)\b(?! (?:of|in))(?P<z>.*)",
        "studies=studied_by:p; job=job:q",
        "-",
        "known",
    ),
    (
        "studies_subject_at",
        rf"(?:stud(?:y|ies)|{BEEN} (?:studying|majoring in|reading(?= [a-z])|doing (?:a|my)"
        rf" (?:degree"
        rf"|masters?"
        rf"|master's|phd|PhD|doctorate|bachelor's|bachelors?|MBA) in|pursuing (?:a|my) (?:\w+ )?in"
        rf"))(?: (?P<p>[^,]+?))? at (?P<o>(?:the )?[A-Z].+)",
        "studies_at=school_name:o; studies=study:p",
        "-",
        "known",
    ),
    (
        "works_at_as",
        rf"(?:works?|{BEEN} (?:working|employed)) (?:at|for) (?P<o>.+?) as (?P<p>(?:a|an|the) .+)",
        "works_at=employer:o; job=job:p",
        "-worked_at",
        "known",
    ),
    (
        "works_at",
        rf"(?:works?|{BEEN} (?:working|employed))(?: part[- ]time| full[- ]time| remotely|"
        rf" nights| days| weekends| shifts| freelance)? (?:at|for) (?P<o>.+)",
        "works_at=employer:o",
        "-worked_at",
        "any",
    ),
    (
        "works_as_at",
        rf"(?:works?|{BEEN} (?:working|employed)) as (?P<o>.+?) (?:at|for|with) (?P<p>(?:a|an"
        rf"|the|my|our) .+|[A-Z].+)",
        "job=job:o; works_at=employer:p",
        "",
        "known",
    ),
    (
        "works_as",
        rf"(?:works?|{BEEN} (?:working|employed)) as (?P<o>.+)",
        "job=job:o",
        "-",
        "known",
    ),
    (
        "works_shifts_at",
        r"works? (?:[\w&-]+ ){1,6}?(?:at|for) (?P<o>(?:the )?[A-Z].+)",
        "works_at=named_employer:o",
        "-worked_at",
        "known",
    ),
    (
        "works_in_a",
        rf"(?:works?|{BEEN} working) in (?P<o>(?:a|an|the) (?:\w+ ){{0,4}}(?:shop|bakery|hospital"
        r"|school|restaurant|bank|office|factory|library|cafe|café|hotel|company|store|bar|clinic"
        r"|studio|museum|lab|kitchen|firm|agency|pharmacy|salon|warehouse|supermarket))\b"
        rf"(?: as (?P<p>(?:a|an|the) .+))?",
        "works_at=employer:o; job=job:p",
        "-worked_at",
        "known",
    ),
    (
        "makes_a_living",
        r"(?:(?:make|makes|earn|earns) (?:a|my|her|his) living|freelances?|moonlights?) as"
        r" (?P<o>.+)",
        "job=job:o",
        "",
        "known",
    ),
    (
        "interns_at",
        rf"(?:interns?|{BEEN} (?:interning|doing (?:an?|my) (?:\w+ )?(?:internship|residency"
        rf"|placement"
        rf"|apprenticeship|traineeship)|a (?:trainee|apprentice))) (?:at|with) (?P<o>(?:the"
        rf" )?[A-Z].+)",
        "works_at=company:o",
        "-worked_at",
        "known",
    ),
    (
        "is_in_field",
        rf"{BE} in (?P<o>sales|marketing|finance|banking|real estate|HR|tech|insurance|advertising"
        rf"|construction|consulting|hospitality|healthcare|retail|logistics|recruiting)$",
        "works_in=field:o",
        "-",
        "known",
    ),
    ("reports_to", r"reports? to (?P<o>[A-Z].+)", "boss=names:o", "-", "speaker"),
    (
        "works_in",
        rf"(?:works?|{BEEN} working|have a job|has a job) in (?P<o>.+)",
        "works_in=field:o",
        "-",
        "known",
    ),
    (
        "started_at",
        r"(?:have |has )?(?:started|begun|began)(?: a)?(?: new| working)?(?: (?:job|role"
        r"|position))?(?: working)? (?:at|with|for) (?P<o>.+)",
        "works_at=named_employer:o",
        "",
        "known",
    ),
    (
        "started_as",
        r"(?:have |has )?(?:started|begun|began)(?: a)?(?: new| working)?(?: (?:job|role"
        r"|position))? as (?P<o>.+?)(?: (?:at|with) (?P<p>.+))?$",
        "job=job:o; works_at=named_employer:p",
        "",
        "known",
    ),
    (
        "got_job_at",
        r"(?:have |has )?(?:got|gotten|landed|found|took|taken|accepted|have|has|started"
        r"|begun)(?: a| an| the| my)?(?: \w+){0,2} (?:job|role|position|offer|gig)"
        r"(?: as (?P<p>.+?))? (?:at|with|from|for) (?P<o>.+)",
        "works_at=named_employer:o; job=job:p",
        "",
        "known",
    ),
    (
        "got_job_as",
        r"(?:have |has )?(?:got|gotten|landed|found|took|taken|accepted|have|has|started"
        r"|begun)(?: a| an| the| my)?(?: [\w-]+){0,4} (?:job|role|position|gig)"
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
        "religion",
        rf"(?:{BE}|became|have become|was raised|converted to|have converted to|has converted"
        rf" to|joined the|have joined the|has joined the) (?:a |an |a practi[sc]ing "
        rf"|practi[sc]ing |devout )?(?P<o>.+)",
        "religion=religion:o",
        "-",
        "known",
    ),
    (
        "joined",
        r"(?:have |has )?joined (?!.*\b(?:club|choir|team|gym|band|orchestra|group|league"
        r"|church|society|union|class)\b)(?P<o>.+?)(?: as (?P<p>.+))?$",
        "works_at=company:o; job=job:p",
        "",
        "known",
    ),
    (
        "joined_group",
        r"(?:have |has )?(?:joined|am in|is in|am part of) (?P<o>(?:a|an|the|my|our) .*(?:club"
        r"|choir|team|gym|band|orchestra|group|league|church|society|union|class)\b.*)",
        "member_of=noun:o",
        "",
        "known",
    ),
    (
        "switched_jobs",
        r"(?:have |has )?(?:(?:switched|changed|moved) (?:jobs|companies|employers)"
        r"(?: from)? (?P<p>.+?) to|left (?P<q>.+?) (?:for|to join|to work (?:at|for)))"
        r" (?P<o>[A-Z].+)",
        "works_at=employer_no_place:o; worked_at=employer_no_place:p;"
        " worked_at=employer_no_place:q",
        "",
        "known",
    ),
    (
        "changed_jobs",
        r"(?:have |has )?(?:switched|changed) (?:jobs|companies|employers|careers)(?: (?:to"
        r"|and) (?:\w+ )?(?:at )?(?P<o>.+))?$",
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
        rf"(?:have|has|got|took|{BE} working)(?: on)? (?:a|another) (?:second|side|weekend"
        rf"|part[- ]time) (?:job|gig) (?:at|with|in) (?P<o>.+)",
        "works_also_at=employer:o",
        "",
        "known",
    ),
    (
        "teaches_at",
        r"teach(?:es)? at (?P<o>(?:the )?[A-Z].+)",
        "works_at=named_employer:o",
        "",
        "known",
    ),
    (
        "left_job",
        r"(?:have |has )?(?:quit|left|resigned from|lost|gave up|given up)(?: from)? (?:my|his"
        r"|her|the) (?:old |current |full-time |day |corporate |last )?(?:job|position|role|work)"
        r"(?: (?:at|with) (?P<o>.+?))?(?: (?:as|to|for|last|this|because|in|and|on|after|today"
        r"|yesterday)\b.*)?$",
        "-works_at; worked_at=employer:o",
        "",
        "known",
    ),
    (
        "laid_off",
        r"(?:got|was|were|have been|has been|am|is) (?:fired|laid off|sacked|let go|made"
        r" redundant|the sack|the boot|canned)(?: (?:from|by|at) (?P<o>.+))?",
        "-works_at; worked_at=named_employer:o",
        "",
        "known",
    ),
    (
        "resigned",
        r"(?:have |has )?(?:resigned|handed in (?:my|his|her) (?:notice|resignation)|quit)"
        r"(?: (?:at|from) (?P<o>[A-Z].*?))?(?: (?:last|this|yesterday|today|on|in)\b.*)?$",
        "-works_at; worked_at=named_employer:o",
        "",
        "known",
    ),
    (
        "quit_company",
        r"(?:have |has )?(?:quit|resigned from|finished at) (?P<o>[A-Z].+)",
        "worked_at=company:o; -works_at~o",
        "",
        "known",
    ),
    (
        "left_place",
        r"(?:have |has )?left (?!.+ for (?:an?|the|two|three|four|five|some|\d+) (?:[a-z]+ )?"
        r"(?:hours?|nights?|days?|weeks?|weekends?|months?|while|holidays?|vacation|trip|visit"
        r"|meeting|conference|funeral|wedding|concert)\b)(?P<o>[A-Z].+)",
        "-works_at=company:o; -lives_in~o; -studies_at~o",
        "",
        "known",
    ),
    (
        "left_group",
        r"(?:have |has )?(?:quit|left) (?P<o>(?:a|an|the|my|our) .*"
        r"(?:club|choir|team|gym|band|orchestra|group|league|church|society|union)\b)",
        "-member_of~o",
        "",
        "known",
    ),
    (
        "unemployed",
        rf"{BE} (?:unemployed|jobless|out of work|between jobs|out of a job)\b",
        "job='unemployed'; -works_at",
        "-",
        "known",
    ),
    (
        "retired",
        r"(?:am |is |are |have |has |got )?retired(?! (?:the|my|it|from (?:football|tennis"
        r"|running|racing|cycling|boxing)))(?: from (?P<o>.+))?(?P<z>\b.*)$",
        "job='retired'; -works_at; worked_at=named_employer:o",
        "-",
        "known",
    ),
    (
        "self_employed",
        rf"(?:{BE} (?:self[- ]employed|a freelancer|freelancing|my own boss)|work for myself"
        rf"|went freelance|started freelancing)\b(?P<o>.*)",
        "job='self-employed'; -works_at",
        "",
        "known",
    ),
    (
        "job_at",
        rf"{BEEN} (?P<o>(?:a|an|the|now|head|chief|lead|senior|junior|one of the) .+?) (?:at"
        rf"|for|with) (?P<p>[A-Z].+)",
        "job=job:o; works_at=named_employer:p",
        "",
        "known",
    ),
    ("job", rf"{BEEN} (?P<o>(?:a|an|the) .+)", "job=job:o", "-", "known"),
    (
        "became",
        r"(?:have |has )?(?:became|become|got promoted to|was promoted to|have been promoted"
        r" to|has been promoted to|qualified as|trained as|was made|been promoted to) (?P<o>.+)",
        "job=job:o",
        "",
        "known",
    ),
    (
        "runs",
        r"(?:runs?|owns?|opened|founded|started|have started|has started|launched|have opened)"
        r" (?P<o>(?:a|an|my own|my|her own|his own) .*(?:business|company|shop|startup|bakery"
        r"|cafe|café|restaurant|studio|store|practice|agency|brewery|bookshop|farm|blog"
        r"|podcast|channel|charity|newsletter|salon|gallery))\b",
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
        rf"{BE} (?:writing|building|developing|working on|composing|recording|restoring"
        rf"|renovating) (?P<o>(?:a|an|my|our|my own) .*(?:novel|book|game|app|album|thesis"
        rf"|dissertation|startup|memoir|screenplay|phd|house|boat|car|song|comic|podcast"
        rf"|website|blog|short film|documentary))\b",
        "works_on=noun:o",
        "",
        "known",
    ),
    # study
    (
        "studies_at",
        rf"(?:stud(?:y|ies)(?: .+?)?|{BEEN} (?:studying(?: .+?)?|enrolled(?: in .+?)?|a"
        rf" (?:\w+ ){{0,3}}student|a (?:freshman|sophomore|junior|senior))|go|goes|attends?"
        rf"|transferred to|have transferred to|has transferred to|switched to|got into|got"
        rf" accepted (?:to|into|at)|am doing my (?:phd|masters|master's|degree)(?: in .+?)?)"
        r"(?: at| to| in)? (?P<o>(?:the )?(?:[A-Z][\w'.&-]* )*(?:University|College|School"
        r"|Institute|Academy|Uni|MIT|UCLA|NYU|USC|ETH|Oxford|Cambridge|Stanford|Harvard|Yale"
        r"|Princeton|Berkeley)\b(?: of [A-Z]\w+(?: [A-Z]\w+)?)?)",
        "studies_at=named_employer:o",
        "-",
        "known",
    ),
    (
        "studies",
        rf"(?:{BEEN} (?:studying|majoring in|doing a (?:degree|master'?s|phd) in|doing my"
        rf" (?:degree|master'?s|phd) in|pursuing a (?:degree|master'?s|phd) in)|majors? in"
        rf"|stud(?:y|ies)|(?:switched|changed) (?:my )?major to|(?:am|is) a .+? (?:major"
        rf"|student) in) (?P<o>.+)",
        "studies=study:o",
        "-",
        "known",
    ),
    (
        "switched_drink",
        r"(?:have |has )?(?:switched|changed) from (?P<p>.+?) to (?P<o>.+)",
        "drinks=drink:o; -drinks~p",
        "",
        "known",
    ),
    (
        "switched_subject",
        r"(?:have |has )?(?:switched|changed|moved)(?: over)?(?: from (?P<p>\w+))? to (?P<o>.+)",
        "studies=subject_of_study:o",
        "",
        "known",
    ),
    ("major", rf"{BE} (?:a|an) (?P<o>.+?) (?:major|student)$", "studies=study:o", "-", "known"),
    (
        "year_of",
        rf"{BE} in (?:my|the) (?:\w+) year of (?:a |my )?(?P<o>.+?)(?: at (?P<p>[A-Z].+))?$",
        "studies=study:o; studies_at=named_employer:p",
        "",
        "known",
    ),
    (
        "studied",
        r"(?:studied|majored in|have a (?:degree|master'?s|phd|bachelor'?s) in|did (?:a|my)"
        r" (?:degree|master'?s|phd|bachelor'?s) in|got (?:a|my) (?:degree|master'?s|phd"
        r"|bachelor'?s) in) (?P<o>.+?)(?: (?:at|from) (?P<p>.+))?$",
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
        "graduated_in",
        r"(?:have |has )?(?:graduated in (?P<p>.+?)|got (?:my|a) (?:\w+ )?(?:degree|diploma)(?:"
        r" in (?P<q>"
        r".+?))?) (?:from|at) (?P<o>(?:the )?[A-Z].+)",
        "graduated_from=school_name:o; studied=study:p; studied=study:q",
        "",
        "known",
    ),
    (
        "graduated",
        r"(?:have |has )?(?:graduated|dropped out|finished (?:uni|university|college|school|my"
        r" degree|my studies))\b(?! from| with)(?: of (?P<o>.+))?",
        "-studies_at; -studies",
        "",
        "known",
    ),
    (
        "learning",
        rf"(?:{BE} (?:learning|trying to learn|taking up|teaching myself)|(?:have |has"
        rf" )?(?:started|begun"
        rf"|began)(?: learning)?|learn|learns)(?: how)?(?: to (?:play|speak|learn))?(?: the)?"
        rf" (?P<o>.+)",
        "learning=skill:o",
        "-",
        "known",
    ),
    (
        "lessons",
        rf"(?:{BE} taking|takes?|(?:have |has )?(?:started|signed up for|begun|began)|{HAVE}"
        rf"|am doing|am having) (?P<o>.+?) (?:lessons|classes|class|course)\b",
        "learning=lesson:o",
        "-",
        "known",
    ),
    (
        "volunteers_at",
        rf"(?:volunteers?|{BE} volunteering|{HAVE} started volunteering|started"
        rf" volunteering) (?:at|with|for) (?P<o>.+)",
        "volunteers_at=employer:o",
        "-",
        "known",
    ),
    (
        "member_of",
        rf"(?:{BE} (?:a|an active|a proud) member of|belongs? to|{BE} in) (?P<o>(?:a|an|the"
        rf"|my|our) .*(?:club|choir|team|band|orchestra|league|church|society|union|group)\b.*)",
        "member_of=noun:o",
        "-",
        "known",
    ),
    (
        "sings_in",
        r"(?:sings?|plays?|am|is) in (?P<o>(?:a|an|the|my|our) .*(?:choir|band|orchestra|team)\b)",
        "member_of=noun:o",
        "-",
        "known",
    ),
)
"""The id, what follows the subject, the effects, the effect of a negation, and the subjects."""
