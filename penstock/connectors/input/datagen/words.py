"""Made-up text: lists of words, and templates over them for every text strategy of the reference API.

In a template `{name}` is a word of that list, `#` a digit, `^` a digit from 1 to 9, `%` a hexadecimal
digit; everything else stands for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.connectors.input.datagen.check_digits import isbn10, isbn13, luhn

_LISTS: dict[str, str] = {
    "word": (
        "acorn amber anchor apple arrow autumn barn basket beacon birch blanket bottle branch bread bridge "
        "brook button cabin candle canyon carpet castle cedar chair cherry circle clock cloud clover coast "
        "copper corner cotton cradle creek curtain daisy dawn desk dune ember engine feather fern field "
        "flame forest fountain garden ginger glass grain granite harbor hazel hill honey island ivory "
        "jacket kettle ladder lantern leaf lemon lily linen maple marble meadow mill mirror morning moss "
        "mountain needle oak ocean olive orchard paper pebble pencil pepper pine plum pond quilt rain "
        "ribbon river rope sail sand shell silver snow spring stone stream summer table thistle thread "
        "timber tower valley velvet village wagon walnut water willow window winter wool"
    ),
    "first_name": (
        "Ada Aisha Alan Amara Anders Ana Barbara Bjorn Carlos Chen Claude Dara Dmitri Donald Edsger Elena "
        "Emeka Fatima Farid Grace Greta Hana Hugo Ines Ivan Jamal John Jun Kamala Katherine Kofi Lars Leila "
        "Leslie Lin Luca Margaret Maria Mei Mina Nadia Niklaus Noor Olga Omar Paulo Priya Radia Rosa Rui "
        "Samuel Sofia Tariq Tim Uma Vera Wei Yara Yusuf Zoe"
    ),
    "last_name": (
        "Abara Allen Andersen Backus Bauer Bianchi Chowdhury Codd Costa Diaz Dijkstra Engelbart Eriksen "
        "Farah Fischer Floyd Garcia Gray Hamilton Haddad Hoare Hopper Ito Ivanova Jansen Johnson Kaur Kim "
        "Knuth Kowalski Lamport Larsen Liskov Lovelace Mbeki Mendes Milner Moreau Nakamura Nguyen Novak "
        "Okafor Olsen Park Patel Perlman Popov Ritchie Rossi Sato Schmidt Silva Tanaka Torres Turing "
        "Virtanen Wirth Yilmaz Zhou Zimmer"
    ),
    "title": "Mr. Ms. Mrs. Mx. Dr. Prof.",
    "suffix": "Jr. Sr. II III IV MD PhD DDS",
    "domain_suffix": "com org net info biz io dev app eu",
    "field": (
        "Accounting Compliance Design Engineering Finance Hardware Legal Logistics Marketing Operations "
        "Purchasing Quality Research Sales Security Support Training"
    ),
    "position": (
        "Administrator Advisor Analyst Assistant Consultant Coordinator Director Engineer Manager Officer "
        "Planner Representative Specialist Supervisor Technician"
    ),
    "seniority": "Assistant Associate Chief Global Junior Lead Principal Regional Senior Staff",
    "rfc_status_code": (
        "100 101 102 103 200 201 202 203 204 205 206 207 208 226 300 301 302 303 304 305 307 308 400 401 402 "
        "403 404 405 406 407 408 409 410 411 412 413 414 415 416 417 421 422 423 424 425 426 428 429 431 451 "
        "500 501 502 503 504 505 506 507 508 510 511"
    ),
    "company_suffix": "AG Cooperative Corp GmbH Group Holdings Inc LLC Ltd Partners SA",
    "buzzword": (
        "Accelerated Agile Aligned Bold Calibrated Connected Curated Durable Empowered Future-ready Guided "
        "Human-centred Incremental Lean Measured Next-level Orchestrated Purposeful Reimagined Resilient "
        "Simplified Streamlined Sustainable Transformed Trusted Unified"
    ),
    "buzzword_middle": (
        "always-on bite-sized cloud-first composable cross-team customer-led data-driven edge-ready "
        "end-user event-based hands-free high-touch insight-led low-code mission-ready mobile-first "
        "multi-region outcome-based real-time self-service value-based zero-downtime"
    ),
    "buzzword_tail": (
        "backbone blueprint canvas cockpit dashboard ecosystem fabric flywheel foundation framework hub "
        "journey landscape marketplace mindset narrative pipeline platform playbook roadmap suite toolkit "
        "vision workflow workspace"
    ),
    "bs_verb": (
        "accelerate align amplify automate broaden champion consolidate co-create democratise elevate "
        "energise future-proof harmonise ideate industrialise launch onboard pilot reframe refresh reinvent "
        "ship simplify supercharge unlock upskill"
    ),
    "bs_adj": (
        "actionable ambitious boundless bite-sized carbon-neutral category-defining cloud-first "
        "customer-led decisive everyday forward-looking hyperlocal inclusive joined-up lightweight "
        "measurable multi-channel nimble omnipresent purposeful repeatable scalable seamless timely"
    ),
    "bs_noun": (
        "alignments audiences backlogs briefings touchpoints dashboards flywheels growth-levers handovers "
        "insights journeys learnings milestones narratives offerings outcomes partnerships personas "
        "pipelines playbooks quick-wins roadmaps segments stakeholders takeaways workstreams"
    ),
    "profession": (
        "accountant architect baker barber beekeeper bookbinder brewer carpenter chemist cook dentist "
        "electrician farmer firefighter gardener geologist glazier journalist judge librarian locksmith "
        "mechanic midwife musician nurse optician painter pharmacist pilot plumber potter roofer sailor "
        "scientist surveyor tailor teacher translator vet welder"
    ),
    "industry": (
        "Agriculture Automotive Aviation Banking Biotechnology Catering Chemicals Construction Education "
        "Electronics Energy Entertainment Fisheries Forestry Healthcare Hospitality Insurance Logistics "
        "Machinery Mining Packaging Pharmaceuticals Printing Publishing Railways Retail Shipbuilding "
        "Telecommunications Textiles Tourism"
    ),
    "currency_code": "AUD BRL CAD CHF CNY DKK EUR GBP HUF INR JPY KRW MXN NOK NZD PLN SEK SGD USD ZAR",
    "currency_name": (
        "Dollar Euro Forint Franc Krona Krone Peso Pound Rand Real Renminbi Rupee Won Yen Zloty"
    ),
    "currency_symbol": "$ € £ ¥ ₩ ₹ kr zł Ft R",
    "city_prefix": "North East West South New Lake Port",
    "city_suffix": (
        "town ton land ville berg burgh borough bury view port mouth stad furt chester fort haven side shire"
    ),
    "country_code": (
        "AR AT AU BE BR CA CH CL CN DE DK ES FI FR GB IE IN IT JP KE KR MX NG NL NO NZ PL PT SE US ZA"
    ),
    "country_name": (
        "Argentina Australia Austria Belgium Brazil Canada Chile China Denmark Finland France Germany "
        "India Ireland Italy Japan Kenya Mexico Netherlands Nigeria Norway Poland Portugal Spain "
        "Sweden Switzerland"
    ),
    "street_suffix": (
        "Alley Avenue Boulevard Bridge Circle Court Drive Hill Lane Park Road Square Street Way"
    ),
    "time_zone": (
        "Africa/Cairo Africa/Lagos America/Bogota America/Chicago America/Denver America/New_York "
        "America/Sao_Paulo Asia/Dubai Asia/Kolkata Asia/Shanghai Asia/Tokyo Australia/Sydney "
        "Europe/Berlin Europe/Lisbon Europe/London Europe/Paris Pacific/Auckland UTC"
    ),
    "state_name": (
        "Alabama Alaska Arizona California Colorado Delaware Florida Georgia Hawaii Idaho Illinois "
        "Indiana Iowa Kansas Kentucky Maine Maryland Michigan Minnesota Montana Nevada Ohio Oregon "
        "Texas Utah Vermont Virginia Wyoming"
    ),
    "state_abbr": "AL AK AZ CA CO DE FL GA HI ID IL IN IA KS KY ME MD MI MN MT NV OH OR TX UT VT VA WY",
    "secondary_address_type": "Apt. Suite Unit Floor",
    "file_extension": (
        "avi css csv doc gif html jpg js json mp3 mp4 pdf png py sql txt wav webm xls xml zip"
    ),
    "browser": "Firefox/128.0 Chrome/126.0.0.0 Safari/605.1.15 Edg/126.0.2592.87",
    "platform": "X11;_Linux_x86_64 Windows_NT_10.0;_Win64;_x64 Macintosh;_Intel_Mac_OS_X_14_5",
    "status_class": "1 2 3 4 5",
    "octet": " ".join(map(str, range(256))),
    "degrees_90": " ".join(map(str, range(-89, 90))),
    "degrees_180": " ".join(map(str, range(-179, 180))),
}

LISTS: dict[str, list[str]] = {
    name: [word.replace("_", " ") if name == "platform" else word for word in words.split()]
    for name, words in _LISTS.items()
}

TEMPLATES: dict[str, str] = {
    "name": "{first_name} {last_name}",
    "name_with_title": "{title} {first_name} {last_name}",
    "username": "{first_name}_{last_name}##",
    "email": "{first_name}.{last_name}##@{word}.{domain_suffix}",
    "job_title": "{seniority} {field} {position}",
    "ipv4": "{octet}.{octet}.{octet}.{octet}",
    "ipv6": ":".join(["%%%%"] * 8),
    "mac_address": ":".join(["%%"] * 6),
    "user_agent": "Mozilla/5.0 ({platform}) {browser}",
    "valid_status_code": "{status_class}##",
    "company_name": "{last_name} {company_suffix}",
    "catch_phrase": "{buzzword} {buzzword_middle} {buzzword_tail}",
    "bs": "{bs_verb} {bs_adj} {bs_noun}",
    "credit_card_number": "4### #### #### ####",
    "city_name": "{city_prefix} {last_name}{city_suffix}",
    "street_name": "{last_name} {street_suffix}",
    "secondary_address": "{secondary_address_type} ^##",
    "zip_code": "#####",
    "post_code": "#####-####",
    "building_number": "^##",
    "latitude": "{degrees_90}.######",
    "longitude": "{degrees_180}.######",
    "isbn": "978-#-##-######-#",
    "isbn13": "978-#-##-######-#",
    "isbn10": "#-##-######-#",
    "phone_number": "(^##) ^##-####",
    "cell_number": "^##-^##-####",
    "file_name": "{word}.{file_extension}",
    "dir_path": "/{word}/{word}",
    "file_path": "/{word}/{word}/{word}.{file_extension}",
}

LOWER = ("email", "username")
"""Strategies whose text is in lower case."""

CHECK_DIGITS: dict[str, Callable[[Any], Any]] = {
    "credit_card_number": luhn,
    "isbn": isbn13,
    "isbn10": isbn10,
    "isbn13": isbn13,
}
"""How the last character of a template follows from those before it."""

_PARTS = {"browser", "platform", "octet", "degrees_90", "degrees_180", "status_class"}
"""Lists that only templates use."""

REPEATED = ("password", "words", "sentence", "sentences", "paragraph", "paragraphs")
"""Strategies that repeat letters, words or sentences a number of times, within `range`."""

STRATEGIES = (*sorted(LISTS.keys() - _PARTS), *sorted(TEMPLATES), "ip", *REPEATED)
"""Every text strategy."""
