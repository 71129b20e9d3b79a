"""Made-up text: lists of words, and templates over them for every text strategy of the reference API.

In a template `{name}` is a word of that list, `#` a digit, `^` a digit from 1 to 9, `%` a hexadecimal
digit; everything else stands for itself.
"""

from __future__ import annotations

_LISTS: dict[str, str] = {
    "word": (
        "alias amet animi aut beatae culpa dolor ducimus earum error et facere fuga harum id illum "
        "ipsa iusto labore magni minus nam nemo nihil odio omnis porro quae quia quos ratione rem sed "
        "sint sunt tempora ullam unde velit vero vitae voluptas"
    ),
    "first_name": (
        "Ada Alan Barbara Carlos Chen Claude Donald Edsger Elena Fatima Grace Hana Ivan John Kamala "
        "Katherine Leslie Lin Margaret Maria Niklaus Olga Priya Radia Rosa Samuel Tim Vera Wei Yusuf"
    ),
    "last_name": (
        "Allen Backus Codd Diaz Dijkstra Engelbart Floyd Garcia Gray Hamilton Hoare Hopper Ito "
        "Johnson Kaur Kim Knuth Lamport Liskov Lovelace Milner Nakamura Novak Okafor Perlman Ritchie "
        "Rossi Turing Wirth Zhou"
    ),
    "title": "Mr. Ms. Dr. Prof. Mx.",
    "suffix": "Jr. Sr. I II III IV MD PhD",
    "domain_suffix": "com org net info biz io dev",
    "field": "Marketing Sales Accounting Legal Design Engineering Research Support Logistics Operations",
    "position": (
        "Supervisor Associate Executive Liaison Officer Manager Engineer Specialist Director Analyst "
        "Assistant"
    ),
    "seniority": "Junior Senior Lead Principal Chief Regional Global",
    "valid_status_code": (
        "100 200 201 202 204 206 301 302 304 400 401 403 404 405 409 410 418 429 500 501 502 503 504"
    ),
    "company_suffix": "Inc LLC Ltd GmbH Group Partners Cooperative",
    "buzzword": (
        "adaptive balanced compatible distributed durable exclusive focused horizontal incremental "
        "innovative managed modular open optional organic polarised robust secured synchronised "
        "versatile"
    ),
    "buzzword_middle": (
        "24-hour asynchronous bifurcated bottom-line client-driven coherent concurrent contextual "
        "dedicated dynamic executive explicit fault-tolerant global holistic hybrid logistical "
        "modular multi-tasking"
    ),
    "buzzword_tail": (
        "ability access adapter algorithm alliance analyzer application approach architecture archive "
        "array benchmark budget capability capacity challenge circuit collaboration complexity"
    ),
    "bs_verb": (
        "aggregate architect benchmark brand deliver deploy drive embrace enable engage evolve "
        "expedite grow implement incubate integrate leverage maximize monetize morph optimize scale "
        "streamline visualize"
    ),
    "bs_adj": (
        "back-end best-of-breed clicks-and-mortar collaborative compelling cross-platform customized "
        "cutting-edge distributed dynamic efficient end-to-end frictionless global granular holistic "
        "interactive"
    ),
    "bs_noun": (
        "action-items applications architectures bandwidth channels communities content convergence "
        "deliverables e-markets experiences functionalities infrastructures initiatives interfaces "
        "markets methodologies"
    ),
    "profession": (
        "architect baker carpenter chemist dentist electrician farmer gardener judge librarian "
        "mechanic nurse painter pilot plumber scientist tailor teacher translator welder"
    ),
    "industry": (
        "Agriculture Automotive Aviation Banking Biotechnology Chemicals Construction Education "
        "Energy Entertainment Fisheries Healthcare Insurance Mining Printing Publishing Railways "
        "Telecommunications Textiles"
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
    "letter": (
        "a b c d e f g h i j k l m n o p q r s t u v w x y z A B C D E F G H J K L M N P Q R S T U V W X Y Z"
    ),
    "octet": " ".join(map(str, range(256))),
    "degrees_90": " ".join(map(str, range(-89, 90))),
    "degrees_180": " ".join(map(str, range(-179, 180))),
}

LISTS: dict[str, list[str]] = {
    name: [word.replace("_", " ") if name == "platform" else word for word in words.split()]
    for name, words in _LISTS.items()
} | {
    "#": list("0123456789"),
    "^": list("123456789"),
    "%": list("0123456789abcdef"),
}

TEMPLATES: dict[str, str] = {
    "name": "{first_name} {last_name}",
    "name_with_title": "{title} {first_name} {last_name}",
    "username": "{first_name}_{last_name}##",
    "email": "{first_name}.{last_name}##@{word}.{domain_suffix}",
    "password": "{letter}{letter}#{letter}{letter}#{letter}{letter}{letter}#{letter}#",
    "job_title": "{seniority} {field} {position}",
    "ipv4": "{octet}.{octet}.{octet}.{octet}",
    "ipv6": ":".join(["%%%%"] * 8),
    "ip": "{octet}.{octet}.{octet}.{octet}",
    "mac_address": ":".join(["%%"] * 6),
    "user_agent": "Mozilla/5.0 ({platform}) {browser}",
    "rfc_status_code": "{valid_status_code}",
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

_PARTS = {"browser", "platform", "octet", "degrees_90", "degrees_180", "letter", "#", "^", "%"}
"""Lists that only templates use."""

REPEATED = ("words", "sentence", "sentences", "paragraph", "paragraphs")
"""Strategies that repeat another one a number of times, within `range`."""

STRATEGIES = (*sorted(LISTS.keys() - _PARTS), *sorted(TEMPLATES), *REPEATED)
"""Every text strategy."""
